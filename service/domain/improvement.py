"""Whether an experiment still gets better: a pure function of how its trials ended, in the order in which they did."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.problem import Direction, sign_of


@dataclass(frozen=True)
class EndedTrial:
    """A trial that ended with a value. One that was stopped early, or is infeasible, is no contender for the best."""

    number: int
    value: float
    contends: bool = True


def describe_stagnation(
    newest: Sequence[EndedTrial], best_before: EndedTrial | None, direction: Direction, metric: str, min_delta: float
) -> str | None:
    """Why it gets no better: none of the `newest` beats `best_before` by more than `min_delta`; None if one does.

    Without a best before them there is nothing to improve on.
    """
    if best_before is None or not newest:
        return None
    contenders = [one for one in newest if one.contends]
    sign = sign_of(direction)
    best = min(contenders, key=lambda one: sign * one.value, default=None)
    if best is not None and sign * (best_before.value - best.value) > min_delta:
        return None
    than = f" by more than {min_delta:g}" if min_delta else ""
    told = f"the best of them: {best.value:g} (trial {best.number})" if best else "none of them ran to its end"
    these = f"the last {len(newest)} finished trials" if len(newest) > 1 else "the last finished trial"
    return f"{these} did not improve {metric} {best_before.value:g} (trial {best_before.number}){than}; {told}"
