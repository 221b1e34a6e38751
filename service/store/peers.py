"""The trials that a report is compared with, as an index answers for them: thousands cost no more than ten."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from search.early_stopping import Standing
from search.problem import Direction
from service.domain.statuses import TrialStatus
from service.store.tables import MilestoneRow, TrialRow


class StoredPeers:
    """`search.early_stopping.Peers` of a milestone, without the trial `but`. Reads when asked."""

    def __init__(self, session: Session, experiment_id: str, milestone: int, but: str) -> None:
        self._session = session
        self._there = (MilestoneRow.experiment_id == experiment_id, MilestoneRow.milestone == milestone)
        self._others = MilestoneRow.trial_id != but

    def standing(self, value: float, direction: Direction) -> Standing:
        better = MilestoneRow.value > value if direction == "maximize" else MilestoneRow.value < value
        return Standing(self._count(), self._count(better))

    def value_at(self, place: int, direction: Direction) -> float:
        order = MilestoneRow.value.desc() if direction == "maximize" else MilestoneRow.value.asc()
        query = select(MilestoneRow.value).where(*self._there, self._others).order_by(order)
        return self._session.scalars(query.offset(place).limit(1)).one()

    def completed(self) -> Sequence[float]:
        query = select(MilestoneRow.value).join(TrialRow, TrialRow.id == MilestoneRow.trial_id)
        completed = TrialRow.status == TrialStatus.COMPLETED
        return self._session.scalars(query.where(*self._there, self._others, completed)).all()

    def _count(self, *wanted: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(MilestoneRow).where(*self._there, self._others, *wanted)
        return self._session.scalar(query) or 0
