"""What early stopping looks at."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, Peers
from search.early_stopping.compared_metric import number_in
from search.problem import Direction
from service.store.early_stopping.milestones import Milestones, milestones_of
from service.store.tables import ReportRow, TrialRow


@dataclass(frozen=True)
class StoredHistory:
    """`search.early_stopping.History` of a trial, under its experiment's lock. Reads when asked.

    `metric` is the one that is judged; None: the first objective's, which reports have in a column of its own.
    `previous_step`: the trial has reached no milestone beyond it yet.
    """

    session: Session
    trial: TrialRow
    metric: str | None = None
    previous_step: int | None = None

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        is_new = self.previous_step is None or self.previous_step < milestone
        return self._milestones.add(self.trial.id, self.trial.number, milestone, value, pool, is_new=is_new)

    def peers(self, milestone: int, pool: int) -> Peers:
        return self._milestones.at(milestone).peers(pool, but=self.trial.number)

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
        trial, steps = self.trial, select(ReportRow.step).where(ReportRow.trial_id == self.trial.id)
        self._milestones.move(trial.id, trial.number, steps, COMPLETED)
        last = trial.value if self.metric is None else self._last()
        if last is not None:
            self._milestones.add(trial.id, trial.number, AT_END, last, COMPLETED)

    def _last(self) -> float | None:
        curve = self.curve()
        return curve[max(curve)] if curve else None

    @property
    def _milestones(self) -> Milestones:
        return milestones_of(self.session, self.trial.experiment_id)

    def _id_of(self, number: int) -> str:
        of_experiment = TrialRow.experiment_id == self.trial.experiment_id
        return self.session.scalars(select(TrialRow.id).where(of_experiment, TrialRow.number == number)).one()
