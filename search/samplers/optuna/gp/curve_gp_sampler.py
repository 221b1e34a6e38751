"""A Gaussian process over params and steps: what a trial has shown early tells how it, and others, will end.

As in MOBSTER (Klein et al., Model-based Asynchronous Hyperparameter and Neural Architecture Search, 2020,
https://arxiv.org/abs/2003.10865), all values that trials were compared by are points of one model, with the logarithm
of the step as another input.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from search.samplers.learning_curve import LearningCurve
from search.samplers.optuna.gp.curve_points import KnownPoints, levels
from search.samplers.optuna.gp.losses import Array, are_huge, bounded, standardized
from search.samplers.optuna.gp.model_estimate import LossScale
from search.samplers.optuna.gp.sampler import FULLY_TRAINED, LevelGpSampler, Observed


class CurveGpSampler(LevelGpSampler):
    """`curves`, by number, are those of the completed trials; what trials have as their values does not count."""

    def __init__(self, curves: Mapping[int, LearningCurve], **options: Any) -> None:
        super().__init__(**options)
        self._curves = curves

    def still_running(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        return [trial for trial in trials if self._curves[trial.number].is_running]

    def observed(self, trials: Sequence[FrozenTrial], params: Array) -> Observed | None:
        """The losses of a trial count until it diverges."""
        curves = [self._curves[trial.number] for trial in trials]
        known = KnownPoints.of(curves)
        if not known.are_informative:
            return None
        indexes, steps, losses = zip(*known.points, strict=True)
        reached = levels(np.array(steps), max(curve.last_step for curve in curves))
        inputs = np.column_stack([params[list(indexes)], FULLY_TRAINED * reached])
        shown = np.array(losses)
        learned = bounded(shown)
        values = standardized(learned)
        scale = None if are_huge(shown) else LossScale.of(values, learned)
        return Observed(inputs, values, scale, known.has_diverged)
