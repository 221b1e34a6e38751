"""A second node of the tests' Ray cluster."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.processes import family_of, kill_all
from tests.ray_nodes import start_node
from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService


@dataclass
class SecondNode:
    """`only`: the scaling of a worker group that fits only on this node."""

    process: subprocess.Popen[bytes]
    id: str = ""
    only: dict[str, Any] | None = None

    def kill(self) -> None:
        """Kill all its processes at the same time, as a power failure does."""
        kill_all(family_of(self.process.pid))
        self.process.wait()


@contextmanager
def second_node(service: FakeService, address: str, name: str, python: str = sys.executable) -> Iterator[SecondNode]:
    import ray  # noqa: PLC0415 - heavy

    def found() -> str | None:
        return next((n["NodeID"] for n in ray.nodes() if n["Alive"] and name in n["Resources"]), None)

    service.wait_for(lambda: service.claims)  # then this process, whose agent claims, has joined the cluster
    process = start_node("--address", address, cpus=4, resources={name: 4}, labels=f"named={name}", python=python)
    node = SecondNode(process, only={"num_workers": 2, "resources_per_worker": {"CPU": 1, name: 1}})
    try:
        until(lambda: process.poll() is not None or found(), "the second node")
        node.id = found() or ""
        yield node
    finally:
        if process.poll() is None:
            node.kill()
        until(lambda: not lives(node.id), "Ray has noticed the node's death")  # earlier it would use the dead node


def lives(node: str) -> bool:
    import ray  # noqa: PLC0415 - heavy

    return any(entry["Alive"] for entry in ray.nodes() if entry["NodeID"] == node)
