"""What early stopping looks at, as an index answers for it: thousands of trials cost no more than ten."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, Executable, Table, and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, Peer, Standing
from search.early_stopping.measure import number_in
from search.problem import Direction
from service.store.bulk import insert_rows
from service.store.tables import MilestoneRow, ReportRow, TrialRow

NO_NUMBER = -1
"""That of no trial."""


@dataclass(frozen=True)
class StoredHistory:
    """`search.early_stopping.History` of a trial. Reads when asked.

    `metric` is the one that is judged; None: the first objective's, which reports have in a column of its own.
    `previous_step`: the trial has reached no milestone beyond it yet.
    """

    session: Session
    trial: TrialRow
    metric: str | None = None
    previous_step: int | None = None

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        trial = self.trial
        may_be_known = self.previous_step is not None and milestone <= self.previous_step
        if may_be_known and self.session.get(MilestoneRow, (trial.experiment_id, milestone, trial.id)) is not None:
            return False
        self._add(milestone, value, pool)
        return True

    def peers(self, milestone: int, pool: int) -> "StoredPeers":
        return StoredPeers(self.session, self.trial.experiment_id, milestone, pool, but=self.trial.number)

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        self.session.flush()
        of_trial = ReportRow.trial_id == (self.trial.id if number is None else self._id_of(number))
        if self.metric is None:
            query = select(ReportRow.step, ReportRow.value).where(of_trial, ReportRow.value.is_not(None))
            return {step: value for step, value in self.session.execute(query) if value is not None}
        found = self.session.execute(select(ReportRow.step, ReportRow.metrics).where(of_trial))
        values = {step: number_in(metrics, self.metric) for step, metrics in found}
        return {step: value for step, value in values.items() if value is not None}

    def best_value(self, direction: Direction) -> float:
        if self.metric is not None:
            values = self.curve().values()
            return max(values) if direction == "maximize" else min(values)
        self.session.flush()
        best = func.max if direction == "maximize" else func.min
        found = self.session.scalar(select(best(ReportRow.value)).where(ReportRow.trial_id == self.trial.id))
        return math.nan if found is None else found

    def complete(self) -> None:
        """The trial, which has completed, is now one of those that others are compared with."""
        self.session.flush()
        trial, steps = self.trial, select(ReportRow.step).where(ReportRow.trial_id == self.trial.id)
        own = (MilestoneRow.experiment_id == trial.experiment_id, MilestoneRow.trial_id == trial.id)
        self.session.execute(update(MilestoneRow).where(*own, MilestoneRow.milestone.in_(steps)).values(pool=COMPLETED))
        last = trial.value if self.metric is None else self._last()
        if last is not None and self.session.get(MilestoneRow, (trial.experiment_id, AT_END, trial.id)) is None:
            self._add(AT_END, last, COMPLETED)

    def _last(self) -> float | None:
        curve = self.curve()
        return curve[max(curve)] if curve else None

    def _add(self, milestone: int, value: float, pool: int) -> None:
        """At once, so that what else is to be written need not be before others are compared with it."""
        trial = self.trial
        row = milestone_row(trial.experiment_id, trial.id, trial.number, milestone, value, pool)
        insert_rows(self.session.connection(), MilestoneRow, [row])

    def _id_of(self, number: int) -> str:
        of_experiment = TrialRow.experiment_id == self.trial.experiment_id
        return self.session.scalars(select(TrialRow.id).where(of_experiment, TrialRow.number == number)).one()


def milestone_row(
    experiment_id: str, trial_id: str, number: int, milestone: int, value: float, pool: int
) -> dict[str, Any]:
    """The columns of a `MilestoneRow`."""
    return {
        "experiment_id": experiment_id,
        "milestone": milestone,
        "trial_id": trial_id,
        "number": number,
        "pool": pool,
        "value": value,
    }


class StoredPeers:
    """`search.early_stopping.Peers`, without the trial with the number `but`, if one is named."""

    def __init__(self, session: Session, experiment_id: str, milestone: int, pool: int, but: int = NO_NUMBER) -> None:
        self._session = session
        self._whom = {"experiment": experiment_id, "at": milestone, "among": pool, "but": but}

    def count(self) -> int:
        return int(self._ask(_COUNT).scalar_one())

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
        before = NO_NUMBER if number is None else number
        return Standing(*self._ask(_STANDING[direction], than=value, before=before).one())

    def ranked(self, direction: Direction, first: int, count: int) -> Sequence[Peer]:
        return [Peer(number, value) for number, value in self._ask(_RANKED[direction], first=first, most=count)]

    def _ask(self, query: Executable, **facts: float) -> CursorResult[*tuple[Any, ...]]:
        """Past the session: what is asked for was written at once, and a trial asks at every rung."""
        return self._session.connection().execute(query, self._whom | facts)


def _standing(better: ColumnElement[bool]) -> Executable:
    before = and_(_MILESTONES.value == bindparam("than"), _MILESTONES.number < bindparam("before"))
    return select(func.count(), func.count().filter(or_(better, before))).where(*_OTHERS)


def _ranked(*order: ColumnElement[Any]) -> Executable:
    others = select(_MILESTONES.number, _MILESTONES.value).where(*_OTHERS).order_by(*order)
    return others.offset(bindparam("first")).limit(bindparam("most"))


# Made once: to put one together takes as long as to answer it.
_MILESTONES = cast(Table, MilestoneRow.__table__).c
_OTHERS = (
    _MILESTONES.experiment_id == bindparam("experiment"),
    _MILESTONES.milestone == bindparam("at"),
    _MILESTONES.pool == bindparam("among"),
    _MILESTONES.number != bindparam("but"),
)
_COUNT = select(func.count()).select_from(MilestoneRow).where(*_OTHERS)
_STANDING: Mapping[Direction, Executable] = {
    "maximize": _standing(_MILESTONES.value > bindparam("than")),
    "minimize": _standing(_MILESTONES.value < bindparam("than")),
}
_RANKED: Mapping[Direction, Executable] = {
    "maximize": _ranked(_MILESTONES.value.desc(), _MILESTONES.number.desc()),
    "minimize": _ranked(_MILESTONES.value.asc(), _MILESTONES.number.asc()),
}
