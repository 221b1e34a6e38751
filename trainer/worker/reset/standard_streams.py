"""The standard streams of a worker process, which a training function may replace, redirect or close."""

import contextlib
import os
import sys
from dataclasses import dataclass, field
from typing import Any

STANDARD = (1, 2)
"""The file descriptors of the standard output and error."""


@dataclass(frozen=True)
class StandardStreams:
    """As they are before the training function runs."""

    streams: tuple[Any, Any] = field(default_factory=lambda: (sys.stdout, sys.stderr))
    files: tuple[object, ...] = field(default_factory=lambda: _files())  # noqa: PLW0108 - defined below

    def put_back(self) -> str | None:
        """Have the next trial print into its own log. Returns why it cannot, or None."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a class of the user's may raise anything
                stream.flush()
        sys.stdout, sys.stderr = self.streams
        if any(getattr(stream, "closed", False) for stream in self.streams):
            return "the training function closed sys.stdout or sys.stderr"
        return None if _files() == self.files else "the training function redirected its standard output or error"


def _files() -> tuple[object, ...]:
    """Which files are behind the descriptors; None for a closed one."""
    return tuple(_file(descriptor) for descriptor in STANDARD)


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino
