"""Which trainings diverge, by their learning curves.

The losses of an ordinary training are about the largest at its beginning, and how much they fall differs from problem
to problem. So a loss is not compared with those of later steps, which are less anyway: at the first steps it is
compared as the losses of whole trials are, and later with the losses at the first steps. A jump from which a training
recovers is none at its end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median_low

import numpy as np

from search.samplers.learning_curve import LearningCurve
from search.samplers.optuna.gp.losses import FIRST_TRIALS, Flags

FAR = 3.0
"""Less than for whole trials: the least loss is one of a later step, so that it is farther from those at the first.
With 5, trials of `diverging` in benchmarks/harness/problems.py that `auto`'s rule first compares late were not known.
"""
RISEN = 2.0
"""A later loss has risen if it is so many times as far above the worst beginning as the least loss is below that."""
MIN_BEGINNINGS = 4
"""Brackets may begin at different steps. Of fewer trials the worst one says little."""


@dataclass(frozen=True)
class _Limits:
    """What ordinary losses do not exceed: `beginning` up to `first_step`, and later a rise from `worst`."""

    first_step: float
    beginning: float
    least: float
    worst: float

    def exceeded_by(self, curve: LearningCurve, step: float) -> bool:
        loss = curve.losses[step]
        if not math.isfinite(loss):
            return True
        if step <= self.first_step:
            return loss > self.beginning
        own = [loss for loss in _until(self.first_step, curve) if loss <= self.beginning]
        return loss > _above(max([self.worst, *own]), self.least, RISEN)


_NUMBERS = _Limits(first_step=math.inf, beginning=math.inf, least=0.0, worst=math.inf)
"""Every number is within them."""


def without_divergence(curves: Sequence[LearningCurve]) -> tuple[list[LearningCurve], Flags]:
    """The curves without the losses of diverged trainings, and which of the trials ended with one.

    If all have, losses rise because of what they measure: then only those that are no finite number count.
    """
    kept, has_diverged = _within(_limits(curves), curves)
    return _within(_NUMBERS, curves) if has_diverged.all() else (kept, has_diverged)


def _within(limits: _Limits, curves: Sequence[LearningCurve]) -> tuple[list[LearningCurve], Flags]:
    kept = [
        replace(curve, losses={at: loss for at, loss in curve.losses.items() if not limits.exceeded_by(curve, at)})
        for curve in curves
    ]
    ended_beyond = [max(curve.losses) not in rest.losses for curve, rest in zip(curves, kept, strict=True)]
    return kept, np.array(ended_beyond)


def _limits(curves: Sequence[LearningCurve]) -> _Limits:
    first_steps = sorted(min(curve.losses) for curve in curves)
    first_step = first_steps[:MIN_BEGINNINGS][-1]
    began = (losses for curve in curves if (losses := _until(first_step, curve)))
    beginnings = [loss for losses in islice(began, FIRST_TRIALS) for loss in losses]
    if not beginnings:
        return _NUMBERS
    least = min(loss for curve in curves for loss in curve.losses.values() if math.isfinite(loss))
    limit = _above(median_low(beginnings), least, FAR)
    return _Limits(first_step, limit, least, worst=max(loss for loss in beginnings if loss <= limit))


def _until(step: float, curve: LearningCurve) -> list[float]:
    return [loss for at, loss in curve.losses.items() if at <= step and math.isfinite(loss)]


def _above(loss: float, least: float, far: float) -> float:
    """So many times as far above `loss` as `least` is below it. Infinite if they are equal."""
    return loss + far * (loss - least) if loss > least else math.inf
