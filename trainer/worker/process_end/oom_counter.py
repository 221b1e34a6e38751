"""Whether the kernel has killed for lack of memory where a worker runs, by the counter of the worker's cgroup.

Such a kill is a SIGKILL like any other: only the counter tells them apart. What the slot makes of it is in
`trainer/slot/attempt/outcome.py`, and its failure in `failure_classification.py` there (`killed_by_kernel`).
"""

import os
import re
from pathlib import Path

COUNTER_VARIABLE = "PACELINE_OOM_COUNTER"
"""Names the counter's file, for a container that does not show its cgroup in the usual place."""


def find_oom_counter(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> str | None:
    """The file with this process's counter, of cgroups version 2 or 1. None if there is none."""
    configured = os.environ.get(COUNTER_VARIABLE)
    lines = [line.split(":", 2) for line in _read(own).splitlines()]
    groups = {controllers: path.strip("/") for _, controllers, path in lines}
    candidates = [
        *([configured] if configured else []),
        f"{root}/{groups.get('', '')}/memory.events",
        f"{root}/memory/{groups.get('memory', '')}/memory.oom_control",
        f"{root}/memory/memory.oom_control",  # in a container, /proc shows the path outside of it
    ]
    return next((path for path in candidates if read_oom_kills(path) is not None), None)


def read_oom_kills(counter: str | None) -> int | None:
    """How many processes the kernel has killed for memory. None without a counter."""
    found = re.search(r"^oom_kill (\d+)$", _read(counter), re.MULTILINE) if counter is not None else None
    return int(found.group(1)) if found else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
