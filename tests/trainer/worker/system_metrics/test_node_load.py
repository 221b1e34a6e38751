"""The load of a node, and of a container that has limits of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.worker.system_metrics.node_load import CgroupLimits, NodeLoad

MIB = 2**20


class Container:
    """A cgroup of version 2 with 4 CPUs and 1000 MiB, or the files of one without limits."""

    def __init__(self, root: Path, path: str, *, has_limits: bool = True) -> None:
        self.folder = root / "cgroup" / path
        self.folder.mkdir(parents=True)
        self.write("cpu.max", "400000 100000" if has_limits else "max 100000")
        self.write("memory.max", str(1000 * MIB) if has_limits else "max")
        self.use(cpu_seconds=0, memory=0, cache=0)

    def write(self, file: str, content: str) -> None:
        (self.folder / file).write_text(f"{content}\n")

    def use(self, *, cpu_seconds: float, memory: int, cache: int) -> None:
        self.write("cpu.stat", f"usage_usec {int(cpu_seconds * 1e6)}\nuser_usec 1\nsystem_usec 2")
        self.write("memory.current", str(memory + cache))
        self.write("memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 7")


def limits_of(root: Path, own: str) -> CgroupLimits:
    (root / "own").write_text(own)
    return CgroupLimits(str(root / "cgroup"), str(root / "own"))


def test_a_node_has_its_cpu_memory_and_network(tmp_path: Path) -> None:
    sample = NodeLoad(limits_of(tmp_path, "4:memory:/\n")).sample()
    assert set(sample) == {
        "cpu_utilization_percentage",
        "system_memory_usage_megabytes",
        "system_memory_usage_percentage",
        "network_receive_megabytes",
        "network_transmit_megabytes",
    }
    assert 0 < sample["system_memory_usage_percentage"] < 100
    assert 0 <= sample["cpu_utilization_percentage"] <= 100


@pytest.mark.parametrize("own", ["0::/\n", "1:name=systemd:/\n0::/a/worker\n"])
def test_a_container_has_the_load_within_its_limits(tmp_path: Path, own: str) -> None:
    times: Iterator[float] = iter([100.0, 110.0, 120.0])
    container = Container(tmp_path, "" if own == "0::/\n" else "a")
    if own != "0::/\n":
        Container(tmp_path, "a/worker", has_limits=False)
    load = NodeLoad(limits_of(tmp_path, own), lambda: next(times))
    container.use(cpu_seconds=20, memory=500 * MIB, cache=300 * MIB)
    sample = load.sample()
    assert sample["cpu_utilization_percentage"] == 50
    assert sample["system_memory_usage_percentage"] == 50
    assert sample["system_memory_usage_megabytes"] == pytest.approx(500 * MIB / 1e6, abs=0.1)
    container.use(cpu_seconds=30, memory=500 * MIB, cache=0)
    assert load.sample()["cpu_utilization_percentage"] == 25


def test_a_group_without_limits_has_those_of_the_node(tmp_path: Path) -> None:
    Container(tmp_path, "a", has_limits=False)
    limits = limits_of(tmp_path, "0::/a\n")
    assert (limits.cpus, limits.cpu_seconds(), limits.memory()) == (None, None, None)
