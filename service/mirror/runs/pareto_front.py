"""The Pareto front of an experiment's ended trials, updated one by one, and its hypervolume."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from search.pareto import MAX_HYPERVOLUME_OBJECTIVES, dominates, hypervolume
from search.problem import Direction, sign_of
from service.mirror import mlflow_limits
from service.store.tables import EventRow, ExperimentRow

REFERENCE_TRIALS = 5
MARGIN = 0.1


class FrontMember(NamedTuple):
    number: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class ParetoFront:
    """An immutable Pareto front. `first` are the values of the first trials that have all values, feasible or not.

    They fix the reference point of the hypervolume: in each objective the worst of them, and a tenth of their range
    beyond it. A reference point that moved with each worse trial would make the curve jump without an improvement.
    """

    directions: tuple[Direction, ...]
    members: tuple[FrontMember, ...] = ()
    first: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(cls, experiment: ExperimentRow) -> "ParetoFront | None":
        """Return an empty front; None for an experiment with one objective."""
        objectives = experiment.spec["objectives"]
        return cls(tuple(one["direction"] for one in objectives)) if len(objectives) > 1 else None

    def after(self, end: EventRow) -> "ParetoFront":
        """Return the front with one more ended trial, or this very object when the trial changes nothing."""
        values = _values_of(end, len(self.directions))
        if values is None:
            return self
        known = self if len(self.first) == REFERENCE_TRIALS else replace(self, first=(*self.first, values))
        if end.data.get("feasible") is False or any(
            dominates(one.values, values, self.directions) for one in self.members
        ):
            return known
        stay = tuple(one for one in self.members if not dominates(values, one.values, self.directions))
        return replace(known, members=(*stay, FrontMember(int(end.data.get("number", 0)), values)))

    @property
    def volume(self) -> float | None:
        """The hypervolume; None before its reference point is known, or with too many objectives to compute it fast."""
        if len(self.first) < REFERENCE_TRIALS or len(self.directions) > MAX_HYPERVOLUME_OBJECTIVES:
            return None
        return hypervolume([one.values for one in self.members], self.directions, self._reference)

    @property
    def _reference(self) -> list[float]:
        columns = zip(self.directions, zip(*self.first, strict=True), strict=True)
        return [_beyond(values, sign_of(direction)) for direction, values in columns]


def _beyond(values: Sequence[float], sign: int) -> float:
    losses = [sign * value for value in values]
    return sign * (max(losses) + MARGIN * (max(losses) - min(losses)))


def _values_of(end: EventRow, count: int) -> tuple[float, ...] | None:
    values = [mlflow_limits.number(value) for value in end.data.get("values") or []]
    whole = tuple(value for value in values if value is not None and math.isfinite(value))
    return whole if len(whole) == len(values) == count else None
