"""What Ray Data's tasks reserve, beside workers that may hold all CPUs of the cluster.

By default each task of Ray Data reserves a CPU. Where the workers of trials hold all of them, no task ever starts, the
workers wait for data without end, and nothing says so. So the tasks of a trial's datasets reserve no CPU, unless the
specification says what they reserve. Ray Data still limits how many run at the same time, by its own account of CPUs.

The functions here change Ray in the present process: one that plans datasets and does nothing else.
"""

from collections.abc import Mapping
from typing import Any

import ray
import ray._common.utils as ray_utils
from ray.data._internal.cluster_autoscaler import RateBasedClusterAutoscaler
from ray.data._internal.iterator import stream_split_iterator

Resources = Mapping[str, float]


def plan_here(per_task: Resources) -> None:
    """Have each task and actor that this process starts reserve `per_task` where it would reserve CPUs."""
    replace_cpus(per_task)
    if not per_task.get("CPU"):
        count_all_cpus()
    plan_in_coordinators(per_task)


def replace_cpus(per_task: Resources) -> None:
    original = ray_utils.resources_from_ray_options

    def resources_from_ray_options(options: dict[str, Any]) -> dict[str, Any]:
        resources: dict[str, Any] = original(options)
        return {**resources, "CPU": 0, **per_task} if resources.get("CPU") else resources

    ray_utils.resources_from_ray_options = resources_from_ray_options


def count_all_cpus() -> None:
    """Have Ray Data count all CPUs of the cluster as its own.

    By itself it counts those that no worker group has requested. Without any it runs one task at a time.
    """
    original = RateBasedClusterAutoscaler.get_total_resources

    def get_total_resources(self: Any) -> Any:
        return original(self).copy(cpu=ray.cluster_resources().get("CPU", 0.0))

    RateBasedClusterAutoscaler.get_total_resources = get_total_resources


def plan_in_coordinators(per_task: Resources) -> None:
    """Do the same in the processes that split a dataset among workers, which this process starts."""
    original = stream_split_iterator.SplitCoordinator
    stream_split_iterator.SplitCoordinator = Coordinators(original, dict(per_task))


class Coordinators:
    """Stands in for Ray's actor class: `.options(...).remote(dataset, ...)`."""

    def __init__(self, actor_class: Any, per_task: dict[str, float]) -> None:
        self._actor_class = actor_class
        self._per_task = per_task

    def options(self, **options: Any) -> "Coordinators":
        return Coordinators(self._actor_class.options(**options), self._per_task)

    def remote(self, dataset: Any, *args: Any) -> Any:
        return self._actor_class.remote(PlannedDataset(dataset, self._per_task), *args)


class PlannedDataset:
    """Arrives in another process as the dataset, after `plan_here` has been called there."""

    def __init__(self, dataset: Any, per_task: dict[str, float]) -> None:
        self._parts = dataset, per_task

    def __reduce__(self) -> tuple[Any, ...]:
        return planned, self._parts


def planned(dataset: Any, per_task: dict[str, float]) -> Any:
    plan_here(per_task)
    return dataset
