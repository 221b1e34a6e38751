"""What a search is given: the problem, and what has been observed of its trials."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from search.space.parameters import CategoricalParameter
from search.space.space import Params, Space

if TYPE_CHECKING:
    from search.samplers.spec import SamplerSpec

Direction = Literal["minimize", "maximize"]
Status = Literal["running", "completed", "pruned", "failed", "diverged", "stopped"]


def sign_of(direction: Direction) -> int:
    """What a value is multiplied by so that less is better."""
    return 1 if direction == "minimize" else -1


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    `values` are the objectives' values of a completed trial, in the order of the problem's directions. `last_step` and
    `last_value` are the first objective's newest report, from which a pruned or stopped trial is judged. `running` is
    any trial that has params and no end yet, also one that waits for its next turn. `constraints` are how far the trial
    oversteps each of the experiment's constraints, in one order for all trials: it is feasible when none is above 0.
    None where they are not known.
    """

    number: int
    params: Params
    status: Status
    values: tuple[float, ...] | None = None
    last_step: int | None = None
    last_value: float | None = None
    constraints: tuple[float, ...] | None = None


class Need(StrEnum):
    """What not every sampler can do."""

    CATEGORICALS = "categorical parameters"
    CONDITIONS = "parameters under conditions"
    OBJECTIVES = "several objectives"
    CONSTRAINTS = "constraints"


@dataclass(frozen=True)
class Setting:
    """What is known of an experiment before its first trial, from which a sampler is chosen and refused.

    `constrained`: trials must keep to constraints. `prunes`: an early stopping rule may stop trials. `population`: none
    of them ends before all have begun. `max_trials` is None where there is no limit; `parallelism` is how many trials
    may run at once.
    """

    space: Space
    objective_count: int = 1
    constrained: bool = False
    prunes: bool = False
    max_trials: int | None = None
    parallelism: int = 1
    population: bool = False

    def needs(self) -> Iterator[Need]:
        parameters = self.space.root.values()
        if any(isinstance(one, CategoricalParameter) and len(one.choices) > 1 for one in parameters):
            yield Need.CATEGORICALS
        if any(one.when for one in parameters):
            yield Need.CONDITIONS
        if self.objective_count > 1:
            yield Need.OBJECTIVES
        if self.constrained:
            yield Need.CONSTRAINTS


@dataclass(frozen=True)
class Problem:
    """`seed` is always set: the sampler's own, or one that the service drew and stored. For the rest see `Setting`."""

    space: Space
    directions: tuple[Direction, ...]
    sampler: "SamplerSpec"
    seed: int
    constrained: bool = False
    prunes: bool = False
    max_trials: int | None = None
    parallelism: int = 1
    population: bool = False

    @property
    def setting(self) -> Setting:
        return Setting(
            self.space,
            len(self.directions),
            self.constrained,
            self.prunes,
            self.max_trials,
            self.parallelism,
            self.population,
        )


class SpaceExhausted(Exception):
    """Every configuration of the space has been proposed."""
