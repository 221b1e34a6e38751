"""Which Ray Train trainer runs each kind of training function."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trainer.ray_train.torch_backend import torch_config


@dataclass(frozen=True)
class Backend:
    """`module:trainer` of Ray; `warm`: whether its worker processes may serve one trial after another.

    `options` gives what the trainer is made with beyond what every trainer gets.
    """

    module: str
    trainer: str
    warm: bool = True
    options: Callable[[], dict[str, Any]] = dict

    def trainer_class(self) -> type[Any]:
        """Ray's trainer. Raises ImportError where the framework is not installed."""
        found: type[Any] = getattr(import_module(self.module), self.trainer)
        return found


def own_gpu() -> dict[str, Any]:
    """Each worker sees its own GPU alone, which `ray.train.torch.get_device()` finds."""
    return {"torch_config": torch_config(share_gpus=False)}


def shared_gpus() -> dict[str, Any]:
    """Ray's default: each worker sees those of all workers on its node."""
    return {"torch_config": torch_config(share_gpus=True)}


# Lightning and Accelerate take the device from the local rank, which counts over the whole node.
SHARED = Backend("ray.train.torch", "TorchTrainer", options=shared_gpus)

BACKENDS = {
    "torch": Backend("ray.train.torch", "TorchTrainer", options=own_gpu),
    "lightning": SHARED,
    "transformers": SHARED,
    "xgboost": Backend("ray.train.xgboost", "XGBoostTrainer"),
    "lightgbm": Backend("ray.train.lightgbm", "LightGBMTrainer"),
    # `jax.distributed.initialize` works once in a process.
    "jax": Backend("ray.train.v2.jax", "JaxTrainer", warm=False),
    # TensorFlow's strategies keep their servers' ports for the life of the process.
    "tensorflow": Backend("ray.train.tensorflow", "TensorflowTrainer", warm=False),
}
