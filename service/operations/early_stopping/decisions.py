"""Early-stopping decisions: functions of the stored reports, each stored with its grounds."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from search.early_stopping import MetricReport, Release, Verdict
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.plugin_rules import releases_of, verdicts_of
from search.early_stopping.rules.standalone_rules import is_plugin
from search.reported_numbers import number_in
from service.domain.statuses import StopCause
from service.operations.transitions import request_stop
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import StoredHistory, stored_bracket_of
from service.store.events import append_event
from service.store.sql.write_session import add_later, change_later
from service.store.tables import DecisionRow, ExperimentRow, TrialRow

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decider:
    """Early stopping of an experiment during one transaction that holds its lock."""

    session: Session
    experiment: ExperimentRow
    spec: ExperimentSpec
    now: datetime

    def judge(self, trial: TrialRow, step: int, metrics: Mapping[str, Any]) -> Sequence[int]:
        """Judge the trial at each milestone that this report reaches, up to the first that stops it.

        Returns the milestones that were judged. A report without the rule's metric reaches none, nor does a
        confirmation, which always runs to its end.
        """
        compared = self.spec.compared_metric
        value = number_in(metrics, compared.name)
        # An earlier version counts reports after a pause. They are not judged.
        if value is None or trial.confirms is not None or trial.stop_cause == StopCause.PAUSED:
            return []
        report = MetricReport(
            trial.number, compared.name, compared.direction, step, value, trial.judged_step, stored_bracket_of(trial)
        )
        change_later(trial, judged_step=max(step, trial.judged_step or step))
        if trial.stop_cause is not None:
            return []
        milestones = []
        for verdict in self._verdicts(trial, report):
            decision = "pause" if verdict.pauses else "stop" if verdict.stop else "continue"
            self.record(trial, decision, verdict.step, verdict)
            if verdict.pauses:
                trial.judged_step = trial.paused_milestone = verdict.milestone
                trial.paused_pool = self.spec.early_stopping.pool_of(trial.number, stored_bracket_of(trial))
                trial.paused_value = verdict.value
            if verdict.stop:
                cause = StopCause.PAUSED if verdict.pauses else StopCause.EARLY_STOPPING
                request_stop(trial, cause, verdict.reason)
            milestones.append(verdict.milestone)
        return milestones

    def _verdicts(self, trial: TrialRow, report: MetricReport) -> Iterator[Verdict]:
        with self._contained(f"trial {trial.id} at step {report.step}"):
            yield from verdicts_of(self.spec.early_stopping, report, self._history(trial, report.previous_step))

    def releases(self, paused: PausedTrials) -> Iterator[Release]:
        """Those of the rule."""
        with self._contained("paused trials"):
            yield from releases_of(self.spec.early_stopping, paused)

    @contextmanager
    def _contained(self, what: str) -> Iterator[None]:
        """A rule of another package that fails decides nothing: the report is stored, and the trial goes on."""
        try:
            yield
        except SQLAlchemyError:
            raise
        except (Exception, SystemExit):
            rule = self.spec.early_stopping
            if not is_plugin(rule):
                raise
            log.exception("the rule %s failed on %s, and decides nothing there", rule.rule, what)

    def record(self, trial: TrialRow, decision: str, step: int, said: Verdict | Release) -> None:
        attempt = trial.attempt_count
        facts = {
            "decision": decision,
            "rule": self.spec.early_stopping.rule,
            "metric": self.spec.compared_metric.name,
            "step": step,
            **said.grounds(),
        }
        row = {"trial_id": trial.id, "attempt": attempt, "at": self.now, **facts}
        add_later(self.session, DecisionRow, row)
        data = {"attempt": attempt, **facts}
        append_event(self.session, self.experiment, "decision", data, at=self.now, trial_id=trial.id)

    def record_end(self, trial: TrialRow) -> None:
        """Let rules that compare with trials that ran to their ends see this one."""
        rule = self.spec.early_stopping
        with self._contained(f"the end of trial {trial.id}"):
            if rule.keeps_ends and trial.confirms is None:
                self._history(trial, trial.judged_step).complete(rule)

    def withdraw_end(self, trial: TrialRow) -> None:
        """Undo `record_end`: the trial is retried, so it has no end any more."""
        rule = self.spec.early_stopping
        with self._contained(f"the retry of trial {trial.id}"):
            if rule.keeps_ends and trial.confirms is None:
                self._history(trial, trial.judged_step).reopen(rule)

    def _history(self, trial: TrialRow, previous_step: int | None) -> StoredHistory:
        metric = self.spec.compared_metric.name
        other = None if metric == self.spec.objective.metric else metric
        return StoredHistory(self.session, trial, other, previous_step)
