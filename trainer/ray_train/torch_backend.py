"""Torch's process group: which GPUs a worker sees, and what happens where there are none to speak NCCL with.

Ray picks NCCL by the request alone. On a cluster whose GPUs are only counted (tests, a laptop, a torch without CUDA)
that fails at the start; gloo does the same work on the CPU.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

logger = logging.getLogger("paceline")

LISTENS_SECONDS = 5.0
LOOK_SECONDS = 0.003


class WarmTorchBackend:
    """Mixed into Ray's backend: gloo where there is no NCCL, and nothing left for the next attempt."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if backend_config.backend == "nccl" and not worker_group.execute_single(0, has_nccl):
            logger.warning("GPUs were asked for, but the workers' torch finds none: gloo instead of NCCL")
            backend_config = replace(backend_config, backend="gloo")
        super().on_start(BatchedCalls(worker_group), backend_config)  # type: ignore[misc]

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        # Ray leaves a lone worker's process group to the end of its process, which here goes on.
        left = worker_group.execute_async(leave_process_group)
        super().on_shutdown(worker_group, backend_config)  # type: ignore[misc]
        with contextlib.suppress(GetTimeoutError):  # calls are answered in turn: Ray has waited, and said so
            ray.get(left, timeout=0)


class BatchedCalls:
    """A worker group whose calls to all workers wait for the next call to each, and go with it.

    Ray's backend sets environment variables in two rounds of calls before it makes the process group in a third; each
    round takes as long as the slowest worker.
    """

    def __init__(self, worker_group: Any) -> None:
        self._worker_group = worker_group
        self._waiting: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker_group, name)

    def __len__(self) -> int:
        return len(self._worker_group)

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._waiting.append(partial(function, *args, **kwargs))

    def execute_single(self, rank: int, function: Callable[..., Any]) -> Any:
        asked = getattr(self._worker_group, "early", {}).pop(function, None) if rank == 0 else None
        return self._worker_group.execute_single(rank, function) if asked is None else ray.get(asked)

    def execute_single_async(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        first = [await_first_rank] if rank > 0 and kwargs.get("init_method") == "env://" else []
        calls = [*self._waiting, *first, partial(function, *args, **kwargs)]
        return self._worker_group.execute_single_async(rank, call_in_turn, calls)


def call_in_turn(calls: list[Callable[[], Any]]) -> Any:
    """The last one's result."""
    return [call() for call in calls][-1]


def await_first_rank() -> None:
    """Until it listens, or torch may see to it: which tries again only after half a second or more."""
    address, end = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), time.monotonic() + LISTENS_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(address, LISTENS_SECONDS).close()
        except OSError:
            time.sleep(LOOK_SECONDS)
        else:
            return


def leave_process_group() -> None:
    """What gloo's destructor does is wait for its threads, which look up every 10 ms: nobody else has to."""
    distributed = import_module("torch.distributed")
    if distributed.is_initialized():
        groups = distributed.distributed_c10d._world.pg_map  # noqa: SLF001
        held = [group for group in groups if distributed.get_backend(group) == "gloo"]
        distributed.destroy_process_group()
        threading.Thread(target=held.clear, name="paceline-gloo", daemon=True).start()


def has_nccl() -> bool:
    torch = import_module("torch")
    return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())


def torch_config(*, share_gpus: bool) -> Any:
    """Ray's `TorchConfig` with that backend.

    `share_gpus`: a worker sees the GPUs of all workers on its node, not its own alone.
    """
    rays = import_module("ray.train.torch.config")
    utils = import_module("ray.train._internal.utils")
    backend = type("TorchBackend", (WarmTorchBackend, rays._TorchBackend), {"share_cuda_visible_devices": share_gpus})  # noqa: SLF001
    ours = {"backend_cls": property(lambda _self: backend), "asked_early": (utils.get_address_and_port,)}
    return type("TorchConfig", (rays.TorchConfig,), ours)()
