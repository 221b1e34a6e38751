"""A Gaussian process over params and steps: what a trial has shown early tells how it, and others, will end.

As in MOBSTER (Klein et al., Model-based Asynchronous Hyperparameter and Neural Architecture Search, 2020,
https://arxiv.org/abs/2003.10865), all values that trials were compared by are points of one model, with the logarithm
of the step as another input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from search.samplers.learning_curve import LearningCurve
from search.samplers.optuna.gp.curve_points import levels, points_of
from search.samplers.optuna.gp.losses import Array, Flags, bounded, diverged, standardized
from search.samplers.optuna.gp.sampler import FULLY_TRAINED, LevelGpSampler, Observed

FAR = 3.0
"""The losses of early steps are among those of which the median is taken."""


class CurveGpSampler(LevelGpSampler):
    """`curves`, by number, are those of the completed trials; what trials have as their values does not count."""

    def __init__(self, curves: Mapping[int, LearningCurve], **options: Any) -> None:
        super().__init__(**options)
        self._curves = curves

    def still_running(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        return [trial for trial in trials if self._curves[trial.number].is_running]

    def observed(self, trials: Sequence[FrozenTrial], params: Array) -> Observed | None:
        """The losses of a trial count until it diverges."""
        curves, has_diverged = _without_divergence([self._curves[trial.number] for trial in trials])
        if has_diverged.all():
            return None
        points = points_of(curves)
        indexes = [index for index, _, _ in points]
        reached = levels(np.array([step for _, step, _ in points]), max(curve.last_step for curve in curves))
        losses = np.array([loss for _, _, loss in points])
        if losses.min() == losses.max():
            return None
        values = standardized(bounded(losses))
        return Observed(np.column_stack([params[indexes], FULLY_TRAINED * reached]), values, has_diverged)


def _without_divergence(curves: Sequence[LearningCurve]) -> tuple[list[LearningCurve], Flags]:
    """The curves without what is far from all others, and which of them have such losses."""
    losses = np.array([loss for curve in curves for loss in curve.losses.values()])
    trials = np.repeat(np.arange(len(curves)), [len(curve.losses) for curve in curves])
    far = diverged(losses, trials, FAR)
    is_far = iter(far.tolist())
    kept = [
        replace(curve, losses={step: loss for step, loss in curve.losses.items() if not next(is_far)})
        for curve in curves
    ]
    return kept, np.bincount(trials[far], minlength=len(curves)) > 0
