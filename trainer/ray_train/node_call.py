"""Calls a function on a node of the Ray cluster: directly on the caller's own node, by a Ray task on any other."""

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

TASK_SECONDS = 20.0

Result = TypeVar("Result")


def run_on_node(node: str, function: Callable[..., Result], *arguments: Any, seconds: float = TASK_SECONDS) -> Result:
    """Call the function on this Ray node. Raises Ray's errors, such as GetTimeoutError, if the node does not answer."""
    if node == ray.get_runtime_context().get_node_id():
        return function(*arguments)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0)(function).options(scheduling_strategy=strategy)
    result: Result = ray.get(task.remote(*arguments), timeout=seconds)
    return result
