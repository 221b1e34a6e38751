"""Torch's process group: which GPUs a worker sees, and what happens where there are none to speak NCCL with.

Ray picks NCCL by the request alone. On a cluster whose GPUs are only counted (tests, a laptop, a torch without CUDA)
that fails at the start; gloo does the same work on the CPU.
"""

import logging
from dataclasses import replace
from importlib import import_module
from typing import Any

logger = logging.getLogger("paceline")


class WarmTorch:
    """Mixed into Ray's backend: gloo where there is no NCCL, and nothing left for the next attempt."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if backend_config.backend == "nccl" and not worker_group.execute_single(0, has_nccl):
            logger.warning("GPUs were asked for, but the workers' torch finds none: gloo instead of NCCL")
            backend_config = replace(backend_config, backend="gloo")
        super().on_start(worker_group, backend_config)  # type: ignore[misc]

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        if len(worker_group) == 1:
            # Ray leaves a lone worker's process group to the end of its process, which here goes on.
            worker_group.execute(destroy_process_group)
        super().on_shutdown(worker_group, backend_config)  # type: ignore[misc]


def destroy_process_group() -> None:
    distributed = import_module("torch.distributed")
    if distributed.is_initialized():
        distributed.destroy_process_group()


def has_nccl() -> bool:
    torch = import_module("torch")
    return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())


def torch_config(*, share_gpus: bool) -> Any:
    """Ray's `TorchConfig` with that backend.

    `share_gpus`: a worker sees the GPUs of all workers on its node, not its own alone.
    """
    rays = import_module("ray.train.torch.config")
    backend = type("TorchBackend", (WarmTorch, rays._TorchBackend), {"share_cuda_visible_devices": share_gpus})  # noqa: SLF001
    return type("TorchConfig", (rays.TorchConfig,), {"backend_cls": property(lambda _self: backend)})()
