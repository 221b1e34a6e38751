"""What tells proxies on the way that an answer is to be passed on as it comes, without a cache or a buffer."""

from collections.abc import Mapping

UNBUFFERED: Mapping[str, str] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of streams that follow something. nginx buffers answers unless it gets the second one."""
