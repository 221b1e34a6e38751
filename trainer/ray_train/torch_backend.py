"""Ray Train's torch backend for warm workers: the process group, and which GPUs a worker sees.

Ray chooses NCCL whenever GPUs are requested. Where the GPUs exist only as a count (tests, a laptop, a torch without
CUDA) the start then fails; gloo does the same work on the CPU.
"""

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

logger = logging.getLogger("paceline")

LISTEN_SECONDS = 5.0
"""How long the other ranks wait until the first rank listens; then torch waits by itself."""

LISTEN_CHECK_SECONDS = 0.003


class WarmTorchBackend:
    """Mixed into Ray's backend: gloo where there is no NCCL, and nothing of a run that stays for the next one."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if backend_config.backend == "nccl" and not worker_group.execute_single(0, has_nccl):
            logger.warning("GPUs were requested, but torch finds none on the workers: using gloo instead of NCCL")
            backend_config = replace(backend_config, backend="gloo")
        super().on_start(BatchedCalls(worker_group), backend_config)  # type: ignore[misc]

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        # Ray never ends the process group of a lone worker: it expects the process to end.
        left = worker_group.execute_async(forget_run)
        super().on_shutdown(worker_group, backend_config)  # type: ignore[misc]
        with contextlib.suppress(GetTimeoutError):  # a worker answers its calls in order: Ray has waited and logged it
            ray.get(left, timeout=0)


class BatchedCalls:
    """A worker group that sends its calls to all workers together with the next call to each worker.

    Ray's backend sets environment variables by two rounds of calls, and creates the process group by a third. Each
    round takes as long as the slowest worker.
    """

    def __init__(self, worker_group: Any) -> None:
        self._worker_group = worker_group
        self._pending: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker_group, name)

    def __len__(self) -> int:
        return len(self._worker_group)

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._pending.append(partial(function, *args, **kwargs))

    def execute_single(self, rank: int, function: Callable[..., Any]) -> Any:
        answer = getattr(self._worker_group, "prefetched", {}).pop(function, None) if rank == 0 else None
        return self._worker_group.execute_single(rank, function) if answer is None else ray.get(answer)

    def execute_single_async(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calls = [*self._pending, partial(function, *args, **kwargs)]
        if kwargs.get("init_method") == "env://":
            calls.insert(-1, await_first_rank if rank > 0 else listen_at_own_address)
        return self._worker_group.execute_single_async(rank, call_in_order, calls)


def call_in_order(calls: list[Callable[[], Any]]) -> Any:
    """Call all of them; returns the last result."""
    return [call() for call in calls][-1]


def listen_at_own_address() -> Any:
    """Have the first rank's store listen at MASTER_ADDR alone; returns the store. Torch opens it on all interfaces.

    Torch uses the server that its process has at the port already, as long as this store exists. None where the address
    is not one of this machine: torch then opens its own.
    """
    distributed = import_module("torch.distributed")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            logger.warning("torch's rendezvous listens on all interfaces, because %s is not free: %s", host, error)
            return None
        # The store closes the descriptor.
        options = {"wait_for_workers": False, "multi_tenant": True, "master_listen_fd": listener.detach()}
        return distributed.TCPStore(host, port, None, True, **options)


def await_first_rank() -> None:
    """Wait until the first rank listens. Torch itself retries only after half a second or more."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + LISTEN_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, LISTEN_SECONDS).close()
        except OSError:
            time.sleep(LISTEN_CHECK_SECONDS)
        else:
            return


def forget_run() -> None:
    leave_process_group()
    forget_accelerate()


def forget_accelerate() -> None:
    """Accelerate keeps the precision and the process group of its first use for as long as the process lives."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - it has no public way
        state.GradientState._reset_state()  # noqa: SLF001


def leave_process_group() -> None:
    """Destroy the process group. A thread waits for gloo's threads, which notice the end only every 10 ms."""
    distributed = import_module("torch.distributed")
    if distributed.is_initialized():
        groups = distributed.distributed_c10d._world.pg_map  # noqa: SLF001
        gloo_groups = [group for group in groups if distributed.get_backend(group) == "gloo"]
        distributed.destroy_process_group()
        threading.Thread(target=gloo_groups.clear, name="paceline-gloo", daemon=True).start()


def has_nccl() -> bool:
    torch = import_module("torch")
    return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())


def torch_config(arguments: Mapping[str, Any], *, share_gpus: bool) -> Any:
    """Ray's `TorchConfig` with these arguments and this backend.

    `share_gpus`: a worker sees the GPUs of all workers on its node, instead of only its own.
    """
    config_module = import_module("ray.train.torch.config")
    utils = import_module("ray.train._internal.utils")
    bases = (WarmTorchBackend, config_module._TorchBackend)  # noqa: SLF001
    backend = type("TorchBackend", bases, {"share_cuda_visible_devices": share_gpus})
    attributes = {
        "backend_cls": property(lambda _self: backend),
        "calls_to_prefetch": (utils.get_address_and_port,),
    }
    return type("TorchConfig", (config_module.TorchConfig,), attributes)(**arguments)
