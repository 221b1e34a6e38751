"""What a sampler's model expected of a trial when it proposed it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from search.problem import Direction, sign_of
from search.samplers.sampler import Proposer
from search.space.space import Params

DIGITS = 6


@dataclass(frozen=True)
class Estimate:
    """A Gaussian process (`gp`) expects a `value` of the objective, with a standard deviation from `low` to `high`.

    `improvement_probability` is that of a better value than the best one that it expects of any trial so far.
    `tpe` expects no value: `good_probability` is that of being one of the best trials, of which a `good_share` of those
    so far are.
    """

    model: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    improvement_probability: float | None = None
    good_probability: float | None = None
    good_share: float | None = None

    @classmethod
    def of_losses(cls, losses: Sequence[float], improvement_probability: float, direction: Direction) -> Self | None:
        """The first of three losses is the expected one. None if they are no finite numbers."""
        likely, *ends = (sign_of(direction) * loss for loss in losses)
        if not all(map(math.isfinite, (likely, *ends))):
            return None
        return cls("gp", likely, min(ends), max(ends), improvement_probability)

    @classmethod
    def of_densities(cls, log_ratio: float, good_share: float) -> Self:
        """`log_ratio` is the logarithm of the density of the good trials, divided by that of the others."""
        odds = math.exp(min(log_ratio, 500.0)) * good_share / (1 - good_share) if good_share < 1 else math.inf
        probability = 1.0 if math.isinf(odds) else odds / (1 + odds)
        return cls("tpe", good_probability=probability, good_share=good_share)

    def to_json(self) -> dict[str, Any]:
        return {
            name: float(f"{one:.{DIGITS}g}") if isinstance(one, float) else one
            for name, one in asdict(self).items()
            if one is not None
        }


@dataclass
class NewestDraw:
    """What a model expected of its newest draw, which may have been replaced since by one that is allowed or new."""

    number: int | None = None
    params: Params = field(default_factory=dict)
    expected: Estimate | None = None

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return self.expected if (number, params) == (self.number, self.params) else None


def estimate_of(proposer: Proposer, number: int, params: Params) -> Estimate | None:
    """What the proposer's model expected of its newest proposal, if it is this one; None if it does not tell."""
    told: Callable[[int, Params], Estimate | None] | None = getattr(proposer, "estimate", None)
    return None if told is None else told(number, params)
