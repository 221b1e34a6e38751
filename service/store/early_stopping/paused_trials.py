"""Queries on paused trials. They use an index, so their cost does not depend on the number of trials."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from search.early_stopping import PausedTrial, Peer, Peers
from search.early_stopping.compared_metric import ComparedMetric
from search.problem import Direction
from search.space.space import Space
from service.domain.statuses import TrialStatus
from service.store.early_stopping.milestones import milestones_of
from service.store.tables import TrialRow
from service.store.trials.ended_trials import have_run_to_completion
from service.store.trials.resume_point import resume_points
from service.store.trials.trials import any_that, any_with


@dataclass(frozen=True)
class StoredPausedTrials:
    """`search.early_stopping.PausedTrials` of an experiment. Each method is a query.

    `more_to_come`: new trials may still be created. `reached`: the milestones that trials have reached or paused at
    since the last call; None means all.
    """

    session: Session
    experiment_id: str
    compared_metric: ComparedMetric
    space: Space
    seed: int
    more_to_come: bool
    reached: Collection[int] | None = None

    @property
    def metric(self) -> str:
        return self.compared_metric.name

    @property
    def direction(self) -> Direction:
        return self.compared_metric.direction

    @property
    def others_may_come(self) -> bool:
        live = TrialStatus.QUEUED, TrialStatus.RUNNING
        return self.more_to_come or any_with(self.session, self.experiment_id, *live)

    @property
    def any_completed(self) -> bool:
        return any_that(self.session, self.experiment_id, have_run_to_completion())

    def milestones(self) -> Sequence[int]:
        if self.reached is not None and self.others_may_come:
            return sorted(self.reached)
        found: list[int] = []
        while (further := self._after(found[-1] if found else -1)) is not None:
            found.append(further)
        return found

    def best(self, milestone: int, pool: int) -> Peer | None:
        value = TrialRow.paused_value
        order = value.desc() if self.direction == "maximize" else value.asc()
        there = self._there(milestone), TrialRow.paused_pool == pool
        query = select(TrialRow.number, TrialRow.paused_value).where(*self._paused, *there)
        row = self.session.execute(query.order_by(order, TrialRow.number).limit(1)).first()
        return None if row is None or row.paused_value is None else Peer(row.number, row.paused_value)

    def members(self, milestone: int) -> Sequence[PausedTrial]:
        query = select(TrialRow).where(*self._paused, self._there(milestone)).order_by(TrialRow.number)
        rows = self.session.scalars(query).all()
        points = resume_points(self.session, [row.id for row in rows])
        return [
            PausedTrial(row.number, row.paused_value, row.params, points[row.id].step if row.id in points else None)
            for row in rows
            if row.paused_value is not None
        ]

    def peers(self, milestone: int, pool: int) -> Peers:
        return milestones_of(self.session, self.experiment_id).at(milestone).peers(pool)

    @property
    def _paused(self) -> tuple[ColumnElement[bool], ...]:
        """The condition for paused trials, without those that are still leaving for their pause."""
        return TrialRow.experiment_id == self.experiment_id, TrialRow.stop_cause.is_(None)

    def _there(self, milestone: int) -> ColumnElement[bool]:
        return TrialRow.paused_milestone == milestone

    def _after(self, milestone: int) -> int | None:
        """The next milestone at which a trial is paused, by one index lookup."""
        query = select(TrialRow.paused_milestone).where(*self._paused, TrialRow.paused_milestone > milestone)
        return self.session.scalar(query.order_by(TrialRow.paused_milestone).limit(1))
