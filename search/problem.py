"""A search problem, and what has been observed of its trials."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from search.space.parameters import CategoricalParameter
from search.space.space import Params, Space

Direction = Literal["minimize", "maximize"]
Status = Literal["running", "completed", "pruned", "failed", "diverged", "stopped"]


def sign_of(direction: Direction) -> int:
    """The factor by which a value is multiplied so that less is better."""
    return 1 if direction == "minimize" else -1


def best_value_of(values: Iterable[float], direction: Direction) -> float:
    """The first of those that tie."""
    return max(values) if direction == "maximize" else min(values)


@dataclass(frozen=True)
class Observation:
    """A trial as the search sees it.

    `values` are the objectives' values of a completed trial, in the order of the problem's directions. `last_step` is
    that of the newest report, and `last_value` the value of the first objective up to then (its newest one, or its best
    one if the objective takes that), by which a pruned or stopped trial is ranked. `running`
    is any trial that has params and has not ended, including one that is queued. `constraints` are the trial's
    violations of the experiment's constraints, in the same order for all trials: the trial is feasible when none of
    them is above 0. A field is None where its value is not known. `diverged` is any trial that ended without a usable
    value because of its params; from a `failed` one nothing is learned.

    `rungs` are the steps at which early stopping has compared the trial with others, each with its loss there: the
    value that was compared, negated if more is better. A trial that still runs has them, too.

    `experiment` is the name of the earlier experiment that a trial of a warm start comes from; None for own trials.
    """

    number: int
    params: Params
    status: Status
    values: tuple[float, ...] | None = None
    last_step: int | None = None
    last_value: float | None = None
    constraints: tuple[float, ...] | None = None
    rungs: tuple[tuple[int, float], ...] = ()
    experiment: str | None = None


class Feature(StrEnum):
    """A feature of problems that not every sampler supports."""

    CATEGORICALS = "categorical parameters"
    CONDITIONS = "parameters under conditions"
    OBJECTIVES = "several objectives"
    CONSTRAINTS = "constraints"


@dataclass(frozen=True)
class Problem:
    """What is known of an experiment before its first trial: all that a sampler is chosen for.

    `constrained`: the experiment has constraints. `prunes`: an early stopping rule may stop trials. `population`: all
    trials start before any of them ends. `curve_score`: trials are ranked by what they have shown at their rungs.
    `compares_objective`: early stopping compares trials by the objective, not by another metric. `warm_started`: there
    are trials of earlier experiments. `repeats`: the user wants configurations to be proposed again.
    `max_trials` is None if there is no limit; `parallelism` is the maximum number
    of trials that run at the same time. `other_limits` are the fields of the specification, such as
    `limits.max_seconds`, that may end the search before `max_trials`.
    """

    space: Space
    directions: tuple[Direction, ...]
    constrained: bool = False
    prunes: bool = False
    max_trials: int | None = None
    parallelism: int = 1
    population: bool = False
    curve_score: bool = False
    compares_objective: bool = True
    warm_started: bool = False
    repeats: bool = False
    other_limits: tuple[str, ...] = ()

    @property
    def has_curve_score(self) -> bool:
        """Whether trials can be ranked by their curves: by one objective, with params that do not change on the way."""
        return self.prunes and not self.population and len(self.directions) == 1

    def features(self) -> Iterator[Feature]:
        for feature in (Feature.CATEGORICALS, Feature.CONDITIONS):
            if self.parameters_with(feature):
                yield feature
        if len(self.directions) > 1:
            yield Feature.OBJECTIVES
        if self.constrained:
            yield Feature.CONSTRAINTS

    def parameters_with(self, feature: Feature) -> list[str]:
        """The names of the parameters that have the feature: categorical ones with a choice, or conditional ones."""
        match feature:
            case Feature.CATEGORICALS:
                return [
                    name
                    for name, one in self.space.root.items()
                    if isinstance(one, CategoricalParameter) and len(one.choices) > 1
                ]
            case Feature.CONDITIONS:
                return self.space.conditional
            case _:
                return []


class SpaceExhausted(Exception):
    """Every configuration of the space has been proposed."""
