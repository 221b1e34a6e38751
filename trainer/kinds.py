"""Which Ray Train trainer runs each kind of training function."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Backend:
    """`module:trainer` of Ray; `warm`: whether its worker processes may serve one trial after another."""

    module: str
    trainer: str
    warm: bool = True

    def trainer_class(self) -> type[Any]:
        """Ray's trainer. Raises ImportError where the framework is not installed."""
        found: type[Any] = getattr(import_module(self.module), self.trainer)
        return found


TORCH = Backend("ray.train.torch", "TorchTrainer")

BACKENDS = {
    "torch": TORCH,
    "lightning": TORCH,
    "transformers": TORCH,
    "xgboost": Backend("ray.train.xgboost", "XGBoostTrainer"),
    "lightgbm": Backend("ray.train.lightgbm", "LightGBMTrainer"),
    # `jax.distributed.initialize` works once in a process.
    "jax": Backend("ray.train.v2.jax", "JaxTrainer", warm=False),
    # TensorFlow's strategies keep their servers' ports for the life of the process.
    "tensorflow": Backend("ray.train.tensorflow", "TensorflowTrainer", warm=False),
}
