"""How much each parameter matters for a metric, by Optuna's evaluators over trials with a value or a curve score.

The result is a function of the trials: the same trials give the same numbers in any process, and in any order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from search.analysis.importance_evaluators import Evaluator, importances
from search.numbers_in_messages import counted
from search.problem import Direction
from search.space.space import Params, Space

__all__ = ["MAX_TRIALS", "MIN_TRIALS", "Evaluator", "Importance", "Measured", "importance_of", "sampled"]

MIN_TRIALS = 10
"""With fewer trials the numbers are mostly noise."""

MAX_TRIALS: Mapping[Evaluator, int] = {"ped_anova": 1000, "fanova": 200}
"""The maximum number of trials that are evaluated. fANOVA takes a second for 300 trials and 30 seconds for 1,000."""

_SAME_VALUE = "all of these trials have the same value: no parameter made a difference"

_SAME_PARAMS = "each parameter that can be judged has the same value in all of these trials"


class Measured(NamedTuple):
    """A trial: its configuration, and its value of the metric or its curve score."""

    number: int
    params: Params
    value: float


@dataclass(frozen=True)
class Importance:
    """`parameters` has the importances, the largest first; their sum is 1. If it is empty, `reason` says why.

    A parameter that did not vary has the importance 0.

    `used_count` is the number of trials that were evaluated. `left_out` has the reason for each parameter that the
    evaluator cannot judge.
    """

    parameters: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    used_count: int = 0
    reason: str | None = None


def sampled(numbers: Sequence[int], evaluator: Evaluator) -> list[int]:
    """The numbers of the trials to evaluate: all of them, or the same random sample of the same numbers."""
    most = MAX_TRIALS[evaluator]
    if len(numbers) <= most:
        return sorted(numbers)
    return sorted(np.random.default_rng(0).choice(sorted(numbers), most, replace=False).tolist())


def importance_of(
    space: Space, direction: Direction, trials: Sequence[Measured], evaluator: Evaluator = "ped_anova"
) -> Importance:
    """Expects at most as many trials as `sampled` returns, in any order; those outside of the space are skipped."""
    known = [trial for trial in sorted(trials, key=attrgetter("number")) if not space.mistakes_in(trial.params)]
    if len(known) < MIN_TRIALS:
        return Importance(used_count=len(known), reason=_too_few(len(known), len(trials)))
    if len({trial.value for trial in known}) == 1:
        return Importance(used_count=len(known), reason=_SAME_VALUE)
    found = importances(space, direction, [(one.params, one.value) for one in known], evaluator)
    left_out = _left_out(space, found, evaluator)
    if not any(found.values()):
        return Importance(left_out=left_out, used_count=len(known), reason=_SAME_PARAMS)
    parameters = {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))}
    return Importance(parameters, left_out, len(known))


def _left_out(space: Space, judged: Mapping[str, float], evaluator: Evaluator) -> dict[str, str]:
    why = {
        "fanova": "fANOVA judges only parameters that every trial has; ped_anova also judges conditional ones",
        "ped_anova": "none of the evaluated trials has it",
    }
    return {name: why[evaluator] for name in space.root if name not in judged}


def _too_few(count: int, all_count: int) -> str:
    reason = f"needs at least {MIN_TRIALS} trials that have ended with a value or a curve score, has {count}"
    outside = all_count - count
    return f"{reason}; {counted(outside, 'trial')} outside of the present space" if outside else reason
