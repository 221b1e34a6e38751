"""The registry of trainer kinds: which Ray Train trainer runs each of them.

To add a kind, add a line to `BACKENDS` and its name to `trainer.wire.Kind`. The test of every line of the registry is
`tests/trainer/ray_train/test_trainer_kinds.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trainer.ray_train.lightgbm_backend import lightgbm_config
from trainer.ray_train.torch_backend import torch_config


def no_options(_: Mapping[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Backend:
    """One kind of training function.

    `module` and `trainer` name the Ray trainer's class; `library` is the module that has to be installed for it.
    `is_warm`: whether a worker process can serve one trial after another. `options` returns the arguments with which
    the trainer is constructed beyond those that every trainer gets; it needs the library. Its own argument has those of
    Ray's `TorchConfig` that the user has set.
    """

    module: str
    trainer: str
    library: str
    is_warm: bool = True
    options: Callable[[Mapping[str, Any]], dict[str, Any]] = no_options

    def trainer_class(self) -> type[Any]:
        """Ray's trainer. Raises ImportError where the library is not installed."""
        found: type[Any] = getattr(import_module(self.module), self.trainer)
        return found


def own_gpu(config: Mapping[str, Any]) -> dict[str, Any]:
    """Each worker sees only its own GPU, which `ray.train.torch.get_device()` finds."""
    return {"torch_config": torch_config(config, share_gpus=False)}


def shared_gpus(config: Mapping[str, Any]) -> dict[str, Any]:
    """Each worker sees the GPUs of all workers on its node. This is Ray's default.

    Lightning and Accelerate need it: they choose the device by the local rank, which counts over the whole node.
    """
    return {"torch_config": torch_config(config, share_gpus=True)}


def gpus_as_with_torchrun(_: Mapping[str, Any]) -> dict[str, Any]:
    """Each rank of a command sees the GPUs of all ranks on its node: scripts choose theirs by LOCAL_RANK."""
    ray_backend = import_module("ray.train.backend")
    backend = type("CommandBackend", (ray_backend.Backend,), {"share_cuda_visible_devices": True})
    attributes = {"backend_cls": property(lambda _self: backend)}
    return {"backend_config": type("CommandConfig", (ray_backend.BackendConfig,), attributes)()}


def network_set_anew(_: Mapping[str, Any]) -> dict[str, Any]:
    """Reset LightGBM's network parameters per run; Ray's backend allows one run per process."""
    return {"lightgbm_config": lightgbm_config()}


BACKENDS = {
    "torch": Backend("ray.train.torch", "TorchTrainer", "torch", options=own_gpu),
    "lightning": Backend("ray.train.torch", "TorchTrainer", "torch", options=shared_gpus),
    "transformers": Backend("ray.train.torch", "TorchTrainer", "torch", options=shared_gpus),
    "xgboost": Backend("ray.train.xgboost", "XGBoostTrainer", "xgboost"),
    "lightgbm": Backend("ray.train.lightgbm", "LightGBMTrainer", "lightgbm", options=network_set_anew),
    # The workers only run the command, which sets up its own communication.
    "command": Backend(
        "ray.train.v2.api.data_parallel_trainer", "DataParallelTrainer", "ray", options=gpus_as_with_torchrun
    ),
    # `jax.distributed.initialize` works only once in a process.
    "jax": Backend("ray.train.v2.jax", "JaxTrainer", "jax", is_warm=False),
    # TensorFlow's strategies keep their servers' ports until the process ends.
    "tensorflow": Backend("ray.train.tensorflow", "TensorflowTrainer", "tensorflow", is_warm=False),
}
