"""How much each parameter matters for a metric: Optuna's evaluators over the finished trials. Pure.

Its answers are functions of the trials: the same ones give the same numbers, in any process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from search.lazy_import import loaded
from search.problem import Direction
from search.space.space import Params, Space

Evaluator = Literal["ped_anova", "fanova"]

FEWEST_TRIALS = 10
"""With fewer the numbers say more of chance than of the parameters."""

MOST_TRIALS: Mapping[Evaluator, int] = {"ped_anova": 1000, "fanova": 200}
"""What an answer is made from at most. fANOVA takes a second for 300 trials and half a minute for 1,000."""

_SAME_VALUE = "all of these trials have the same value: nothing that was varied made a difference"


class Measured(NamedTuple):
    """A completed trial: its configuration and its value of the metric."""

    number: int
    params: Params
    value: float


@dataclass(frozen=True)
class Importance:
    """`parameters` adds up to 1, the most important first; empty where `reason` says why.

    `used_count` trials are the base of it. `left_out` has the parameters that the evaluator cannot judge, with the
    reason.
    """

    parameters: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    used_count: int = 0
    reason: str | None = None


def sampled(numbers: Sequence[int], evaluator: Evaluator) -> list[int]:
    """As many of the trials as an answer is made from: always the same ones of the same."""
    most = MOST_TRIALS[evaluator]
    if len(numbers) <= most:
        return sorted(numbers)
    return sorted(np.random.default_rng(0).choice(sorted(numbers), most, replace=False).tolist())


def importance_of(
    space: Space, direction: Direction, trials: Sequence[Measured], evaluator: Evaluator = "ped_anova"
) -> Importance:
    """From at most as many trials as `sampled` gives; those outside of the space, as it is now, are passed over."""
    known = [trial for trial in trials if not space.mistakes_in(trial.params)]
    if len(known) < FEWEST_TRIALS:
        return Importance(used_count=len(known), reason=_too_few(len(known)))
    if len({trial.value for trial in known}) == 1:
        return Importance(used_count=len(known), reason=_SAME_VALUE)
    found = _found(space, direction, known, evaluator)
    parameters = {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))}
    return Importance(parameters, _left_out(space, parameters, evaluator), len(known))


def _found(space: Space, direction: Direction, trials: Sequence[Measured], evaluator: Evaluator) -> dict[str, float]:
    loaded("search.analysis.importance_evaluators")
    from search.analysis import importance_evaluators  # noqa: PLC0415 - with it comes scikit-learn: a second, and 130 MB

    return importance_evaluators.importances(space, direction, [(one.params, one.value) for one in trials], evaluator)


def _left_out(space: Space, judged: Mapping[str, float], evaluator: Evaluator) -> dict[str, str]:
    why = {
        "fanova": "fANOVA judges only parameters that every trial has; ped_anova judges conditional ones too",
        "ped_anova": "no trial that counts here has it",
    }
    return {name: why[evaluator] for name in space.root if name not in judged}


def _too_few(count: int) -> str:
    trials = "1 trial has" if count == 1 else f"{count} trials have"
    return f"{trials} completed with a value; at least {FEWEST_TRIALS} are needed to tell chance from importance"
