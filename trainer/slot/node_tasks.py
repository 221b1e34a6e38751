"""What a slot reads and removes on the node of a worker: directly on its own node, by a Ray task on any other."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.storable import storable_text
from trainer.worker.oom_counter import read_oom_kills

MAX_REST_BYTES = 5_000_000
TASK_SECONDS = 5.0

Result = TypeVar("Result")


def run_on_node(node: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call the function on this Ray node. Raises Ray's errors, such as GetTimeoutError, if the node does not answer."""
    if node == ray.get_runtime_context().get_node_id():
        return function(*arguments)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0)(function).options(scheduling_strategy=strategy)
    result: Result = ray.get(task.remote(*arguments), timeout=TASK_SECONDS)
    return result


def read_unsent(positions: dict[str, int], oom_counter: str | None) -> tuple[str, int | None]:
    """What a dead worker could not send: the rest of its log, and the count of its OOM counter."""
    return read_rest(positions), read_oom_kills(oom_counter)


def read_rest(positions: dict[str, int]) -> str:
    """The text of each file after its position; at most the last MAX_REST_BYTES of it."""
    parts = []
    for path, position in positions.items():
        with Path(path).open("rb") as file:
            start = max(position, file.seek(0, os.SEEK_END) - MAX_REST_BYTES)
            if start > position:
                parts.append(f"[... {start - position} bytes left out ...]\n")
            file.seek(start)
            parts.append(storable_text(file.read().decode(errors="replace")))
    return "".join(parts)


def remove_folder(name: str) -> None:
    """Remove a folder of the node's temporary directory."""
    shutil.rmtree(Path(tempfile.gettempdir()) / name, ignore_errors=True)
