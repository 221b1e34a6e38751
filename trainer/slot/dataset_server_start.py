"""How a slot starts the dataset server of an attempt."""

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.ray_train.datasets.dataset_server_callback import StartServer
from trainer.ray_train.processes.runtime_environments import worker_runtime_env
from trainer.slot.assignment import Assignment
from trainer.slot.user_package import UserPackage
from trainer.worker.datasets.dataset_making import DatasetsJob
from trainer.worker.datasets.dataset_server import DataPlan, DatasetServer, DatasetServerHandle

DEFAULTS: dict[str, Any] = {
    "split": None,
    "enable_shard_locality": True,
    "execution": {"resource_limits": {}, "preserve_order": False},
    "preprocess_on": {"resources": {}, "label_selector": {}},
}
"""`trainer.wire.DataConfig()` as JSON."""


def dataset_server_starter(assignment: Assignment, package: UserPackage, slot: Any, key: str) -> StartServer | None:
    """A function that starts the server, and gets the ids of the workers' nodes by rank; None without datasets.

    `key` names the slot's experiment and all that the datasets are made of.
    """
    trainer = assignment.trainer
    if trainer.datasets is None:
        return None
    job = DatasetsJob(
        run=assignment.run_name,
        run_by=package.folder,
        slot=slot,
        store=f"datasets.{key}",
        datasets=trainer.datasets,
        config=assignment.config,
        constants={name: value for name, value in assignment.config.items() if name not in assignment.params},
        package=package.content,
        package_name=package.filename,
        package_folder=package.folder,
        has_secrets=bool(trainer.secrets),
        log_rank=trainer.workers.max_workers + (trainer.validation is not None),
    )
    cpus = trainer.workers.worker.get("CPU", 0.0)
    asked_for = package.runtime_env(trainer.runtime_env)
    runtime_env = worker_runtime_env(trainer.env, {"num_workers": 1}, asked_for)

    def start(nodes: list[str]) -> DatasetServerHandle:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        server = ray.remote(DatasetServer).options(
            num_cpus=0, max_concurrency=len(nodes) + 1, scheduling_strategy=here, runtime_env=runtime_env
        )
        plan = DataPlan(trainer.data or DEFAULTS, cpus * len(nodes))
        return DatasetServerHandle(server.remote(job, plan, nodes), job)

    return start
