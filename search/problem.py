"""What a search is given: the problem, and what has been observed of its trials."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from search.space import Params, Space

if TYPE_CHECKING:
    from search.samplers.spec import SamplerSpec

Direction = Literal["minimize", "maximize"]
Status = Literal["running", "completed", "pruned", "failed", "diverged", "stopped"]


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    `values` are the objectives' values of a completed trial, in the order of the problem's directions. `last_step` and
    `last_value` are the first objective's newest report, from which a pruned or stopped trial is judged. `running` is
    any trial that has params and no end yet. `constraints` are how far the trial oversteps each of the experiment's
    constraints, in one order for all trials: it is feasible when none is above 0. None where they are not known.
    """

    number: int
    params: Params
    status: Status
    values: tuple[float, ...] | None = None
    last_step: int | None = None
    last_value: float | None = None
    constraints: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Problem:
    """`seed` is always set: the sampler's own, or one that the service drew and stored."""

    space: Space
    directions: tuple[Direction, ...]
    sampler: "SamplerSpec"
    seed: int


class SpaceExhausted(Exception):
    """Every configuration of the space has been proposed."""
