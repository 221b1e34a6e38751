"""From the creation of an actor to its first answer: how long Ray takes to start a worker process, by kind of node.

Three Ray nodes run in turn on this machine: Ray's own without and with Paceline's fork server, and one as `paceline up`
starts it, whose worker processes also start without an import of Ray (docs/decisions/0013). Each actor gets a new
process, which has imported torch when it answers.

    python -m benchmarks.worker_start [--starts 10]
"""

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.cluster_utils import Cluster

from benchmarks.harness.figures import OURS, machine, show
from trainer.ray_train.processes import setup_worker
from trainer.ray_train.processes.runtime_environments import forked_runtime_env

NODES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Ray": ({}, {}),
    "Ray, fork server": ({}, forked_runtime_env()),
    OURS: ({"setup_worker_path": setup_worker.__file__}, forked_runtime_env()),
}
"""By kind: what is changed in the node, and the runtime environment of the actors."""


class Worker:
    def answer(self) -> None:
        import torch  # noqa: F401, PLC0415 - as every training worker does


@contextmanager
def node(changes: Mapping[str, Any]) -> Iterator[None]:
    parts = {"num_cpus": 8, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args={**parts, **changes})
    ray.init(cluster.address, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def start_once(runtime_env: dict[str, Any]) -> float:
    began = time.perf_counter()
    worker = ray.remote(num_cpus=1)(Worker).options(runtime_env=runtime_env).remote()
    ray.get(worker.answer.remote())
    seconds = time.perf_counter() - began
    ray.kill(worker)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=10)
    options = parser.parse_args()
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_prestart_worker_first_driver": "0"}
    print(machine())
    found: dict[str, list[float]] = {}
    for name, (changes, runtime_env) in NODES.items():
        with node(changes):
            start_once(runtime_env)  # the first one starts the fork server
            found[name] = [start_once(runtime_env) for _ in range(options.starts)]
    show("from an actor's creation to its answer", found)


if __name__ == "__main__":
    main()
