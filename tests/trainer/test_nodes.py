"""Nodes of a Ray cluster that die or are drained: a second, real node beside the session's head."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from tests.trainer.conftest import Add, until
from tests.trainer.fake_service import FakeService
from trainer.wire import FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NODE_SECONDS = 240


@dataclass
class SecondNode:
    """`only`: the scaling of a worker group that fits only on this node."""

    process: subprocess.Popen[bytes]
    id: str = ""
    only: dict[str, Any] | None = None

    def kill(self) -> None:
        """Kill all its processes at the same time, as a power failure does."""
        family = [self.process.pid, *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True))]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def second_node(service: FakeService, address: str, name: str) -> Iterator[SecondNode]:
    import ray  # noqa: PLC0415 - heavy

    def found() -> str | None:
        return next((n["NodeID"] for n in ray.nodes() if n["Alive"] and name in n["Resources"]), None)

    service.wait_for(lambda: service.claims)  # then this process, whose agent claims, has joined the cluster
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--address", address, "--num-cpus", "4"]
    command += ["--resources", f'{{"{name}": 4}}', "--object-store-memory", "100000000", "--disable-usage-stats"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    node = SecondNode(process, only={"num_workers": 2, "resources_per_worker": {"CPU": 1, name: 1}})
    try:
        until(lambda: process.poll() is not None or found(), "the second node", NODE_SECONDS)
        node.id = found() or ""
        yield node
    finally:
        if process.poll() is None:
            node.kill()


def held_on(node: str) -> list[str]:
    """The placement groups with a part on that node."""
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    entries = placement_group_table().values()
    return [
        e["placement_group_id"] for e in entries if e["state"] != "REMOVED" and node in e["bundles_to_node_id"].values()
    ]


def lives(node: str) -> bool:
    import ray  # noqa: PLC0415 - heavy

    return any(entry["Alive"] for entry in ray.nodes() if entry["NodeID"] == node)


def drain(address: str, node: str, seconds: float) -> None:
    """Drain the node, as the autoscaler does for a reclaimed spot node."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415 - heavy
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason  # noqa: PLC0415 - heavy

    deadline = int((time.time() + seconds) * 1000)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=address).drain_node(node, reason, "spot reclaim", deadline)
    assert accepted, why


def test_attempts_leave_a_drained_node_in_time_and_continue_elsewhere(
    service: FakeService, add: Add, ray_address: str
) -> None:
    with second_node(service, ray_address, "beta") as node:
        trial = add(config={"steps": 10_000, "pause": 0.1}, trainer={"scaling": node.only}, experiment="x-beta")
        service.wait_for(lambda: service.reports[trial], 120)
        drain(ray_address, node.id, 60)
        error = service.finished(trial, 30).error
        assert error is not None
        assert error.kind == FailureKind.PREEMPTED
        again = add("say_who", experiment="x-beta")
        assert service.finished(again, 120).outcome == Outcome.COMPLETED
        assert not [offered for offered in service.claims[-1].nodes if "beta" in offered.total]
        until(lambda: not held_on(node.id), "nothing is held on the node")


def test_after_the_death_of_a_node_its_attempts_run_on_the_remaining_one(
    service: FakeService, add: Add, ray_address: str
) -> None:
    spread = {"scaling": {"num_workers": 2, "placement_strategy": "SPREAD"}}
    with second_node(service, ray_address, "alpha") as node:
        service.parallelism = 2
        half = add(config={"steps": 10_000, "pause": 0.1}, trainer=spread, experiment="x-spread")
        service.wait_for(lambda: service.reports[half], 120)
        whole = add(config={"steps": 10_000, "pause": 0.1}, trainer={"scaling": node.only}, experiment="x-alpha")
        service.wait_for(lambda: service.reports[whole], 120)
        assert len(held_on(node.id)) == 2
        node.kill()
        # The slot of one attempt lives and reports it; the slot of the other was on the node, so the agent reports it.
        error = service.finished(half, 60).error
        service.wait_for(lambda: whole in service.lost, 60)
    assert error is not None
    assert error.kind == FailureKind.LOST
    until(lambda: not lives(node.id), "Ray has noticed")  # earlier it would use the dead node again
    second = add("say_who", trainer=spread, experiment="x-spread")
    assert service.finished(second, 120).outcome == Outcome.COMPLETED, service.finishes[second]
    until(lambda: not held_on(node.id), "nothing is held on the node")
