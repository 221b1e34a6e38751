"""What a Gaussian process expects of a point, in the units of the losses that it has learned from."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from search.problem import Direction
from search.samplers.estimate import Estimate
from search.samplers.optuna.gp.losses import HUGE, Array


class Model(Protocol):
    """What is needed of Optuna's GPRegressor. `posterior` returns a mean and a variance for each row."""

    noise_var: torch.Tensor

    def posterior(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]: ...


@dataclass(frozen=True)
class LossScale:
    """A line through a model's values, of which more is better, and the losses that they stand for.

    `offset` is that of `log_offset` where the model learns logarithms; None where it learns the losses themselves.
    """

    value: float
    loss: float
    slope: float
    offset: float | None

    @classmethod
    def of(cls, values: Array, losses: Array, offset: float | None = None) -> "LossScale | None":
        """`losses` are as learned, and not huge. None if they are all equal."""
        best, worst = int(np.argmax(values)), int(np.argmin(values))
        if values[best] == values[worst]:
            return None
        slope = (losses[best] - losses[worst]) / (values[best] - values[worst])
        return cls(float(values[best]), float(losses[best]), float(slope), offset)

    def loss_of(self, value: float) -> float:
        learned = self.loss + self.slope * (value - self.value)
        if self.offset is None:
            return learned
        return math.exp(learned) - self.offset if learned < math.log(HUGE) else math.inf


@dataclass(frozen=True)
class ModelEstimate:
    """The value that the model expects to be measured, with its deviation, and the probability of an improvement.

    That is None if there is nothing to improve on yet, as under constraints without a feasible trial.
    """

    mean: float
    deviation: float
    improvement_probability: float | None
    scale: LossScale

    @classmethod
    def of(cls, model: Model, point: torch.Tensor, threshold: float, scale: LossScale) -> "ModelEstimate":
        """`point` has one row. Improvement is a true value above the threshold."""
        with torch.no_grad():
            mean, variance = (float(one) for one in model.posterior(point))
            noise = float(model.noise_var)
        surplus = (mean - threshold) / math.sqrt(max(variance, 1e-12))
        improves = None if math.isinf(threshold) else math.erfc(-surplus / math.sqrt(2)) / 2
        return cls(mean, math.sqrt(max(variance, 0.0) + noise), improves, scale)

    def in_units_of_objective(self, direction: Direction) -> Estimate | None:
        """None if it is no finite number."""
        losses = [self.scale.loss_of(self.mean + deviation) for deviation in (0.0, -self.deviation, self.deviation)]
        return Estimate.of_losses(losses, self.improvement_probability, direction)
