"""The load of the node that this process runs on, or of the container with whose limits it runs.

The names are those of MLflow's system metrics.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

MEGABYTE = 1e6

Clock = Callable[[], float]


class NodeLoad:
    """Each sample has the CPU utilization since the one before, or since this object was made.

    Of a container, the CPUs and the memory are those of its limits, if it has cgroups of version 2. The network is that
    of the node or container; its counters start at 0.
    """

    def __init__(self, limits: "CgroupLimits | None" = None, clock: Clock = time.monotonic) -> None:
        self._limits = limits or CgroupLimits()
        self._clock = clock
        self._sampled_at, self._cpu_seconds = clock(), self._limits.cpu_seconds()
        self._received, self._sent = _network_bytes()
        psutil.cpu_percent()

    def sample(self) -> dict[str, float]:
        received, sent = _network_bytes()
        return {
            "cpu_utilization_percentage": round(self._cpu_percentage(), 1),
            **self._memory(),
            "network_receive_megabytes": round((received - self._received) / MEGABYTE, 1),
            "network_transmit_megabytes": round((sent - self._sent) / MEGABYTE, 1),
        }

    def _cpu_percentage(self) -> float:
        before, self._cpu_seconds = self._cpu_seconds, self._limits.cpu_seconds()
        since, self._sampled_at = self._sampled_at, self._clock()
        if self._limits.cpus is None or before is None or self._cpu_seconds is None:
            return psutil.cpu_percent()
        available = self._limits.cpus * max(self._sampled_at - since, 1e-3)
        return 100 * (self._cpu_seconds - before) / available

    def _memory(self) -> dict[str, float]:
        node = psutil.virtual_memory()
        used, total = self._limits.memory() or (node.used, node.total)
        return {
            "system_memory_usage_megabytes": round(used / MEGABYTE, 1),
            "system_memory_usage_percentage": round(100 * used / total, 1),
        }


class CgroupLimits:
    """The limits of the process's cgroup or the nearest one above that has a limit. None: there is no limit."""

    def __init__(self, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
        line = next((line for line in _read(Path(own)).splitlines() if line.startswith("0::")), "0::/")
        folder = Path(root) / line.removeprefix("0::").strip().lstrip("/")
        folders = [one for one in (folder, *folder.parents) if one.is_relative_to(root)]
        self._cpu = next((one for one in folders if _cpus(one) is not None), None)
        self._memory = next((one for one in folders if _number(one / "memory.max") is not None), None)
        self.cpus = None if self._cpu is None else _cpus(self._cpu)

    def cpu_seconds(self) -> float | None:
        """What the processes under the limit of CPUs have used."""
        used = None if self._cpu is None else _stat(self._cpu / "cpu.stat", "usage_usec")
        return None if used is None else used / 1e6

    def memory(self) -> tuple[float, float] | None:
        """The bytes in use, without the files that the kernel could drop, and the limit."""
        if self._memory is None:
            return None
        used, limit = _number(self._memory / "memory.current"), _number(self._memory / "memory.max")
        if used is None or not limit:
            return None
        return max(0.0, used - (_stat(self._memory / "memory.stat", "inactive_file") or 0.0)), limit


def _cpus(folder: Path) -> float | None:
    """The quota of `cpu.max`: microseconds in a period."""
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _stat(path: Path, name: str) -> float | None:
    lines = (line.split() for line in _read(path).splitlines())
    return next((float(line[1]) for line in lines if len(line) == 2 and line[0] == name), None)  # noqa: PLR2004


def _number(path: Path) -> float | None:
    text = _read(path).strip()
    return float(text) if text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _network_bytes() -> tuple[int, int]:
    """Received and sent since the start of the machine."""
    counters = psutil.net_io_counters(nowrap=False)  # otherwise under a lock, which a fork might find taken
    return (counters.bytes_recv, counters.bytes_sent) if counters is not None else (0, 0)
