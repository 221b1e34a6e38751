"""What early stopping looks at, as an index answers for it: thousands of trials cost no more than ten."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, func, insert, or_, select, update
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, Peer, Standing
from search.early_stopping.measure import number_in
from search.problem import Direction
from service.store.tables import MilestoneRow, ReportRow, TrialRow


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
        self.session.execute(insert(MilestoneRow), [row])

    def _id_of(self, number: int) -> str:
        of_experiment = TrialRow.experiment_id == self.trial.experiment_id
        return self.session.scalars(select(TrialRow.id).where(of_experiment, TrialRow.number == number)).one()


def milestone_row(
    experiment_id: str, trial_id: str, number: int, milestone: int, value: float, pool: int
) -> dict[str, object]:
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

    def __init__(self, session: Session, experiment_id: str, milestone: int, pool: int, but: int | None = None) -> None:
        self._session = session
        self._others = (
            MilestoneRow.experiment_id == experiment_id,
            MilestoneRow.milestone == milestone,
            MilestoneRow.pool == pool,
            *(() if but is None else (MilestoneRow.number != but,)),
        )

    def count(self) -> int:
        query = select(func.count()).select_from(MilestoneRow).where(*self._others)
        return self._session.scalar(query) or 0

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
        better = MilestoneRow.value > value if direction == "maximize" else MilestoneRow.value < value
        if number is not None:
            better = or_(better, and_(MilestoneRow.value == value, MilestoneRow.number < number))
        query = select(func.count(), func.count().filter(better)).select_from(MilestoneRow).where(*self._others)
        return Standing(*self._session.execute(query).one())

    def ranked(self, direction: Direction, first: int, count: int) -> Sequence[Peer]:
        columns = (MilestoneRow.value, MilestoneRow.number)
        order = [column.desc() if direction == "maximize" else column.asc() for column in columns]
        query = select(MilestoneRow.number, MilestoneRow.value).where(*self._others).order_by(*order)
        return [Peer(number, value) for number, value in self._session.execute(query.offset(first).limit(count))]
