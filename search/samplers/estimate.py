"""What a sampler's model expected of a trial when it proposed it."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from search.numbers_in_messages import resolved
from search.problem import Direction, Problem, sign_of
from search.samplers.sampler import Proposer
from search.space.space import Params

PROBABILITY_DIGITS = 4
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Estimate:
    """A Gaussian process (`gp`) expects a `value` of the objective, with a standard deviation from `low` to `high`.

    `improvement_probability` is that of a better value than the best one that it expects of any feasible trial so far;
    None if there is none. `tpe` expects no value: `good_probability` is that of being one of the best trials, of which
    a `good_share` of those so far are.
    """

    model: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    improvement_probability: float | None = None
    good_probability: float | None = None
    good_share: float | None = None

    @classmethod
    def of_losses(
        cls, losses: Sequence[float], improvement_probability: float | None, direction: Direction
    ) -> Self | None:
        """The first of three losses is the expected one. None if they are no finite numbers."""
        likely, *ends = (sign_of(direction) * loss for loss in losses)
        if not all(map(math.isfinite, (likely, *ends))):
            return None
        return cls("gp", likely, min(ends), max(ends), improvement_probability)

    @classmethod
    def of_densities(cls, log_ratio: float, good_share: float) -> Self:
        """`log_ratio` is the logarithm of the density of the good trials, divided by that of the others.

        `good_share` is less than 1.
        """
        odds = math.exp(min(log_ratio, 500.0)) * good_share / (1 - good_share)
        return cls("tpe", good_probability=odds / (1 + odds), good_share=good_share)

    def to_json(self) -> dict[str, Any]:
        """The fields that are not None. Values have as many digits as their interval needs. Raises ValueError."""
        numbers = {name: float(one) for name, one in asdict(self).items() if name != "model" and one is not None}
        if odd := [name for name, one in numbers.items() if not math.isfinite(one)]:
            raise ValueError(f"{' and '.join(odd)} must be finite")
        width = numbers.get("high", 0.0) - numbers.get("low", 0.0)
        parts = [width] if 0 < width < math.inf else []
        return {"model": str(self.model)} | {
            name: float(resolved(one, *parts)) if name in {"value", "low", "high"} else round(one, PROBABILITY_DIGITS)
            for name, one in numbers.items()
        }


class Estimating(ABC):
    """A sampler of Optuna's kind that tells what its model expects."""

    @abstractmethod
    def estimate(self, problem: Problem, params: Params) -> Estimate | None:
        """What it expects of the params that it has drawn; None without a model."""


def nothing() -> None:
    """The estimate of a draw without a model."""


@dataclass
class NewestDraw:
    """What a model expects of its newest draw, which may have been replaced since by one that is allowed or new.

    `expected` is computed only when it is asked for: an error in it must not cost the proposal.
    """

    number: int | None = None
    params: Params = field(default_factory=dict)
    expected: Callable[[], Estimate | None] = nothing

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return self.expected() if (number, params) == (self.number, self.params) else None


def estimate_of(proposer: Proposer, number: int, params: Params) -> Estimate | None:
    """What the proposer's model expected of its newest proposal, if it is this one; None if it does not tell."""
    told: Callable[[int, Params], Estimate | None] | None = getattr(proposer, "estimate", None)
    return None if told is None else told(number, params)


def estimate_as_json(proposer: Proposer, number: int, params: Params) -> dict[str, Any] | None:
    """As `estimate_of`. None, which the log explains, if that raises or is no estimate, as a plugin's may be."""
    try:
        estimate = estimate_of(proposer, number, params)
        return None if estimate is None else estimate.to_json()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it only explains: the proposal counts without it
        log.warning("the estimate of trial %d is left out: %s: %s", number, type(error).__name__, error)
        return None
