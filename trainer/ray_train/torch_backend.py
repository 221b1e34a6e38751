"""Ray Train's torch backend for warm workers: the process group, and which GPUs a worker sees.

Ray chooses NCCL whenever GPUs are requested. Where the GPUs exist only as a count (tests, a laptop, a torch without
CUDA) the start then fails; gloo does the same work on the CPU.
"""

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

logger = logging.getLogger("paceline")

MAX_WAITING = 4096
"""The number of ranks that may connect before the first rank answers them."""


class WarmTorchBackend:
    """Mixed into Ray's backend: gloo where there is no NCCL, and nothing of a run that stays for the next one."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if backend_config.backend == "nccl" and not worker_group.execute_single(0, has_nccl):
            backend_config = replace(backend_config, backend="gloo")
        super().on_start(BatchedCalls(worker_group, backend_config.prefetched_calls), backend_config)  # type: ignore[misc]

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

    `reserving` has what is called in place of Ray's search for a port.
    """

    def __init__(self, worker_group: Any, reserving: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        self._worker_group = worker_group
        self._reserving = reserving
        self._pending: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker_group, name)

    def __len__(self) -> int:
        return len(self._worker_group)

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._pending.append(partial(function, *args, **kwargs))

    def execute_single(self, rank: int, function: Callable[..., Any]) -> Any:
        if function not in self._reserving:
            return self._worker_group.execute_single(rank, function)
        early = getattr(self._worker_group, "prefetched", {}).pop(function, None)
        reserve = self._reserving[function]
        reserved = self._worker_group.execute_single(rank, reserve) if early is None else ray.get(early)
        host, port, self._listener = reserved
        return host, port

    def execute_single_async(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calls = [*self._pending, partial(function, *args, **kwargs)]
        if rank == 0 and "init_method" in kwargs:
            calls.insert(-1, partial(open_store, self._listener))
        return self._worker_group.execute_single_async(rank, call_in_order, calls)


def call_in_order(calls: list[Callable[[], Any]]) -> Any:
    """Call all of them; returns the last result."""
    return [call() for call in calls][-1]


def reserve_port() -> tuple[str, int, int]:
    """Listen where the ranks are going to meet; returns the host, the port and the file descriptor.

    Ray only looks for a port that is free. On a busy machine another process may have it before torch listens there.
    Ranks that connect meanwhile wait for `open_store`; torch would try again only after half a second or more.
    """
    host = ray.util.get_node_ip_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family, backlog=MAX_WAITING)
    except OSError as error:
        logger.warning("torch's rendezvous listens on all interfaces, not only at %s: %s", host, error)
        listener = socket.create_server(("", 0), family=family, backlog=MAX_WAITING)
    port = int(listener.getsockname()[1])
    return host, port, listener.detach()


def open_store(listener: int) -> Any:
    """Serve the ranks' store at a file descriptor of `reserve_port`, which it closes; returns the store.

    Torch uses the server that its process has at the port already, as long as this store exists. Torch's own listens on
    all interfaces.
    """
    distributed = import_module("torch.distributed")
    with socket.socket(fileno=listener) as reserved:
        host, port = reserved.getsockname()[:2]
        # The store closes the descriptor.
        options = {"wait_for_workers": False, "multi_tenant": True, "master_listen_fd": reserved.detach()}
    return distributed.TCPStore(host, port, None, True, **options)


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


def lacks_gpus() -> bool:
    """Whether this worker got GPUs that its torch does not find, so that its process group uses gloo."""
    torch: Any = sys.modules.get("torch")
    is_torch_trial = torch is not None and torch.distributed.is_initialized()
    return bool(is_torch_trial and ray.get_gpu_ids() and not torch.cuda.is_available())


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
        "prefetched_calls": {utils.get_address_and_port: reserve_port},
    }
    return type("TorchConfig", (config_module.TorchConfig,), attributes)(**arguments)
