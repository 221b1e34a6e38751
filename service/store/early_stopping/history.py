"""What early stopping reads of an experiment, from SQL. Trials get their brackets when they are created."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, Peers, Rule
from search.early_stopping.compared_metric import number_in
from search.problem import Direction
from service.store.early_stopping.milestones import milestones_of
from service.store.tables import ReportRow, TrialRow


@dataclass(frozen=True)
class StoredHistory:
    """`search.early_stopping.History` of a trial. The caller holds the experiment's lock.

    `metric` is the one that is judged; None means the first objective, which has a column of its own in reports.
    `previous_step`: the trial has reached no milestone beyond it so far.
    """

    session: Session
    trial: TrialRow
    metric: str | None = None
    previous_step: int | None = None

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        trial, is_new = self.trial, self.previous_step is None or self.previous_step < milestone
        milestones = milestones_of(self.session, trial.experiment_id)
        return milestones.add(trial.id, trial.number, milestone, value, pool, is_new=is_new)

    def peers(self, milestone: int, pool: int) -> Peers:
        return milestones_of(self.session, self.trial.experiment_id).at(milestone).peers(pool, but=self.trial.number)

    def curve(self, number: int | None = None) -> Mapping[int, float]:
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
        best = func.max if direction == "maximize" else func.min
        found = self.session.scalar(select(best(ReportRow.value)).where(ReportRow.trial_id == self.trial.id))
        return math.nan if found is None else found

    def complete(self, rule: Rule) -> None:
        """Record the end of the trial, which has completed, and move it to the pool that others are compared with."""
        trial, steps = self.trial, select(ReportRow.step).where(ReportRow.trial_id == self.trial.id)
        milestones = milestones_of(self.session, trial.experiment_id)
        if rule.compares_completed:
            milestones.move(trial.id, trial.number, steps, COMPLETED)
        last = trial.value if self.metric is None else self._last_value()
        if last is not None:
            milestones.add(trial.id, trial.number, AT_END, rule.value_at_end(last, self), COMPLETED)

    def _last_value(self) -> float | None:
        curve = self.curve()
        return curve[max(curve)] if curve else None

    def _id_of(self, number: int) -> str:
        of_experiment = TrialRow.experiment_id == self.trial.experiment_id
        return self.session.scalars(select(TrialRow.id).where(of_experiment, TrialRow.number == number)).one()


@dataclass(frozen=True)
class StoredCompleted:
    """`search.early_stopping.bracket.CompletedTrials` of an experiment. The caller holds its lock."""

    session: Session
    experiment_id: str

    def newest(self, count: int) -> Sequence[int]:
        return milestones_of(self.session, self.experiment_id).at(AT_END).newest(count)

    def value_at(self, number: int, milestone: int) -> float | None:
        return milestones_of(self.session, self.experiment_id).at(milestone).value_of(number)


def stored_bracket_of(trial: TrialRow) -> int | None:
    """None if none is stored: the bracket then follows from the trial's number (`Hyperband.bracket_of`)."""
    return None if trial.bracket is None else int(trial.bracket["number"])


def stored_brackets(trials: Iterable[TrialRow]) -> dict[int, int]:
    """By number, of the trials that have one."""
    return {trial.number: bracket for trial in trials if (bracket := stored_bracket_of(trial)) is not None}
