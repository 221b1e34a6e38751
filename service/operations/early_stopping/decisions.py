"""What early stopping says to a trial: a function of the stored curves, stored with what it looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from search.early_stopping import MetricReport, Release, Verdict
from search.early_stopping.compared_metric import number_in
from service.domain.statuses import StopCause
from service.operations.trials.stop_request import ask_to_stop
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import StoredHistory
from service.store.events import append_event
from service.store.sql.write_session import add_later, change_later
from service.store.tables import DecisionRow, ExperimentRow, TrialRow


@dataclass(frozen=True)
class Decider:
    """Early stopping of an experiment, under its lock until the transaction ends."""

    session: Session
    experiment: ExperimentRow
    spec: ExperimentSpec
    now: datetime

    def judge(self, trial: TrialRow, step: int, metrics: Mapping[str, Any]) -> Sequence[Verdict]:
        """Judges each milestone that the trial reaches with this report, up to the first that stops it.

        Returns what was said. A report without the metric that early stopping looks at says nothing. What
        comes while a trial leaves for a pause is judged when it goes on.
        """
        compared = self.spec.compared_metric
        value = number_in(metrics, compared.name)
        if value is None or trial.stop_cause == StopCause.PAUSED:
            return []
        report = MetricReport(trial.number, compared.name, compared.direction, step, value, trial.judged_step)
        change_later(trial, judged_step=max(step, trial.judged_step or step))
        if trial.stop_cause is not None:
            return []
        history, said = self.history(trial, report.previous_step), []
        with self.session.no_autoflush:  # the history flushes where it reads what may not be written yet
            for verdict in self.spec.early_stopping.decide(report, history):
                self._act_on(trial, verdict)
                said.append(verdict)
        return said

    def history(self, trial: TrialRow, previous_step: int | None) -> StoredHistory:
        metric = self.spec.compared_metric.name
        other = None if metric == self.spec.objective.metric else metric
        return StoredHistory(self.session, trial, other, previous_step)

    def record(self, trial: TrialRow, decision: str, step: int, said: Verdict | Release) -> None:
        facts = {
            "decision": decision,
            "rule": self.spec.early_stopping.rule,
            "metric": self.spec.compared_metric.name,
            "step": step,
            **said.grounds(),
        }
        attempt = trial.attempt_count
        row = {"trial_id": trial.id, "attempt": attempt, "at": self.now, **facts}
        add_later(self.session, DecisionRow, row)
        data = {"attempt": attempt, **facts}
        append_event(self.session, self.experiment, "decision", data, at=self.now, trial_id=trial.id)

    def _act_on(self, trial: TrialRow, verdict: Verdict) -> None:
        decision = "pause" if verdict.pauses else "stop" if verdict.stop else "continue"
        self.record(trial, decision, verdict.step, verdict)
        if verdict.pauses:
            trial.judged_step = trial.paused_milestone = verdict.milestone
            trial.paused_pool = self.spec.early_stopping.pool_of(trial.number)
            trial.paused_value = verdict.value
        if verdict.stop:
            ask_to_stop(trial, StopCause.PAUSED if verdict.pauses else StopCause.EARLY_STOPPING, verdict.reason)
