"""What a trial has shown, as points of its learning curve that a model of all curves can learn from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from search.problem import Observation, Problem, sign_of

END = math.inf
"""The step of what counts as a trial's result."""


@dataclass(frozen=True)
class LearningCurve:
    """`losses` by step; less is better, and infinite is what is not a number. At END there is the result.

    `last_step` is the last one that is known not to change any more; 0 if there is none.
    """

    losses: Mapping[float, float]
    last_step: int = 0
    is_running: bool = False


def learning_curve_of(problem: Problem, observation: Observation) -> LearningCurve | None:
    """None if nothing is known of the trial (yet). One that diverged is known to end as one of the worst.

    A running trial has shown only what early stopping has compared, as for the curve score.
    """
    losses = _compared(observation)
    last_step = int(max(losses, default=0))
    sign = sign_of(problem.directions[0])
    match observation.status:
        case "completed" if observation.values:
            last_step = max(last_step, observation.last_step or 0)
            before = {step: loss for step, loss in losses.items() if step < last_step}
            return LearningCurve({**before, END: _loss(sign * observation.values[0])}, last_step)
        case "diverged":
            return LearningCurve({END: math.inf})
        case "running" if losses:
            return LearningCurve(losses, last_step, is_running=True)
        case "pruned" | "stopped" if losses:
            return LearningCurve(losses, last_step)
        case "pruned" | "stopped" if observation.last_step is not None and observation.last_value is not None:
            return LearningCurve({observation.last_step: _loss(sign * observation.last_value)}, observation.last_step)
        case _:
            return None


def _compared(observation: Observation) -> dict[float, float]:
    """The first loss in each doubling of the step: rules may compare at every step."""
    found: dict[int, tuple[float, float]] = {}
    for step, loss in sorted(observation.rungs):
        found.setdefault(step.bit_length(), (step, _loss(loss)))
    return dict(found.values())


def _loss(value: float) -> float:
    return math.inf if math.isnan(value) else value
