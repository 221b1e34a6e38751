"""The memory of a worker process: what a trial leaves is freed, and what its libraries keep may not add up."""

import contextlib
import gc
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FROZEN_MODULE = "_paceline_frozen"
"""Marks a process whose libraries are frozen for the GC. (`gc.get_freeze_count()` would walk through all objects.)
It has the memory of the process at its first trial's end, and the number of modules when they were frozen last."""

MANY_MODULES = 100
"""After the import of so many more, they are frozen as well."""

GROWN_MEGABYTES = 1000
"""How much a process may grow from the end of its first trial to that of a later one."""


def freeze_libraries() -> None:
    """Before the first attempt: the GC would look through all loaded libraries for 0.1 to 0.5 seconds."""
    if FROZEN_MODULE not in sys.modules:
        gc.freeze()


def collect_garbage() -> None:
    """Free the attempt's memory. Also freeze what the user's code has loaded, which is usually the first attempt's."""
    gc.collect()
    if FROZEN_MODULE not in sys.modules:
        sys.modules[FROZEN_MODULE] = ModuleType(FROZEN_MODULE)
        _frozen().update(megabytes=used_megabytes(), modules=0)
    if len(sys.modules) >= _frozen()["modules"] + MANY_MODULES:
        gc.freeze()
        _frozen().update(modules=len(sys.modules))


def _frozen() -> dict[str, Any]:
    return sys.modules[FROZEN_MODULE].__dict__


def used_megabytes() -> float:
    """The resident memory of this process; 0 where the kernel does not tell it (proc_pid_statm(5))."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def why_too_large() -> str | None:
    """After `collect_garbage`. Libraries may keep the package's modules, with all their data, of every trial."""
    grown = used_megabytes() - float(_frozen()["megabytes"])
    return f"its memory has grown by {grown:.0f} MB since its first trial" if grown > GROWN_MEGABYTES else None
