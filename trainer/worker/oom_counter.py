"""Whether the kernel has killed for lack of memory where a worker runs, by the counter of the worker's cgroup.

Such a kill is a SIGKILL like any other: nobody is told why, but it is counted.
"""

import os
import re
from pathlib import Path

# Names the file for a container that does not show its cgroup in the usual place.
COUNTER_VARIABLE = "PACELINE_OOM_COUNTER"


def oom_counter(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> str | None:
    """The file that counts them for this process: version 2's or 1's, or None where there is neither."""
    named = os.environ.get(COUNTER_VARIABLE)
    lines = [line.split(":", 2) for line in _read(own).splitlines()]
    groups = {controllers: path.strip("/") for _, controllers, path in lines}
    candidates = [
        *([named] if named else []),
        f"{root}/{groups.get('', '')}/memory.events",
        f"{root}/memory/{groups.get('memory', '')}/memory.oom_control",
        f"{root}/memory/memory.oom_control",  # a container that is told its path outside of it
    ]
    return next((path for path in candidates if oom_kills(path) is not None), None)


def oom_kills(counter: str) -> int | None:
    found = re.search(r"^oom_kill (\d+)$", _read(counter), re.MULTILINE)
    return int(found.group(1)) if found else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
