"""Output of the figures: the machine, medians with their spread, and ratios."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import psutil

OURS = "Paceline"


def machine() -> str:
    """Describe the machine's size, versions and load. Figures of a busy machine mean little."""
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total / 2**30
    parts = f"Python {platform.python_version()}, Ray {version('ray')}, torch {version('torch')}"
    return f"{cores} cores, {memory:.0f} GB, {platform.system()}, {parts}; {load()}"


def load() -> str:
    return "load average {:.1f} {:.1f} {:.1f}".format(*os.getloadavg())


def show(title: str, rows: Mapping[str, Sequence[float]], *, base: str = OURS) -> None:
    """Print seconds by runner. A ratio is a row's median divided by the median of `base`."""
    print(f"\n{title}")
    of_base = rows.get(base)
    for name, seconds in rows.items():
        ratio = f"{statistics.median(seconds) / statistics.median(of_base):8.1f} x" if seconds and of_base else ""
        print(f"  {name:<40} {shown(seconds):<48} {ratio if name != base else ''}".rstrip(), flush=True)


def shown(seconds: Sequence[float]) -> str:
    """Return median and spread, or the value when there is only one."""
    if not seconds:
        return "never"
    if len(seconds) == 1:
        return f"{seconds[0]:8.3f} s"
    return f"{statistics.median(seconds):8.3f} s   ({min(seconds):.3f} to {max(seconds):.3f}, n={len(seconds)})"
