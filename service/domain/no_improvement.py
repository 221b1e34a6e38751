"""Whether an experiment still improves: a pure function of its ended trials, in the order in which they ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.problem import Direction, sign_of


@dataclass(frozen=True)
class EndedTrial:
    """A trial that ended with a value. It is not eligible for the best if it was stopped early or is infeasible."""

    number: int
    value: float
    is_eligible: bool = True


def describe_stagnation(
    newest: Sequence[EndedTrial],
    best_before: EndedTrial | None,
    direction: Direction,
    metric: str,
    min_delta: float,
) -> str | None:
    """A sentence for the user when none of the `newest` trials beats `best_before` by more than `min_delta`.

    None when one of them does, or when there is no earlier best to improve on.
    """
    if best_before is None or not newest:
        return None
    sign = sign_of(direction)
    best = min((trial for trial in newest if trial.is_eligible), key=lambda trial: sign * trial.value, default=None)
    if best is not None and sign * (best_before.value - best.value) > min_delta:
        return None
    margin = f" by more than {min_delta:g}" if min_delta else ""
    none = "none of them ran to its end with a value that counts"
    outcome = f"the best of them: {best.value:g} (trial {best.number})" if best else none
    trials = f"the last {len(newest)} finished trials" if len(newest) > 1 else "the last finished trial"
    before = f"{metric} {best_before.value:g} (trial {best_before.number})"
    return f"{trials} did not improve on {before}{margin}; {outcome} (limits.no_improvement)"
