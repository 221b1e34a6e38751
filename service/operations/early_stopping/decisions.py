"""Early-stopping decisions: functions of the stored reports, each stored with its grounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.early_stopping import MetricReport, Release, Verdict
from search.early_stopping.history import ALL
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.plugin_rules import has_trait, pool_of, releases_of, value_at_end, verdicts_of
from search.reported_numbers import number_in
from service.domain.statuses import StopCause
from service.operations.locked_experiment import LockedExperiment
from service.operations.plugin_rule_errors import logged_failures
from service.operations.transitions import request_stop
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import StoredHistory, stored_bracket_of
from service.store.events import append_event
from service.store.sql.bulk_writes import add_later, change_later
from service.store.tables import DecisionRow, TrialRow


def is_judged(trial: TrialRow) -> bool:
    """Whether early stopping judges a report that the trial makes now: not if it has been asked to stop.

    The report's event stores it, so that a replay and a later rule leave out the same reports.
    """
    return trial.stop_cause is None


@dataclass(frozen=True)
class Decider:
    """Early stopping of an experiment under the rule of this spec."""

    locked: LockedExperiment
    spec: ExperimentSpec

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
        if not is_judged(trial):
            return []
        milestones = []
        for verdict, pool in self._verdicts(trial, report):
            decision = "pause" if verdict.pauses else "stop" if verdict.stop else "continue"
            self.record(trial, decision, verdict.step, verdict)
            if verdict.pauses:
                change_later(trial, judged_step=verdict.milestone)
                trial.paused_milestone = verdict.milestone
                trial.paused_pool = pool
                trial.paused_value = verdict.value
            if verdict.stop:
                cause = StopCause.PAUSED if verdict.pauses else StopCause.EARLY_STOPPING
                request_stop(trial, cause, verdict.reason)
            milestones.append(verdict.milestone)
        return milestones

    def _verdicts(self, trial: TrialRow, report: MetricReport) -> Iterator[tuple[Verdict, int]]:
        """The verdicts of the rule, each with the pool in which the trial waits if it pauses.

        A generator of its own, so that only failures of the rule are caught, not those of what `judge` stores.
        """
        rule = self.spec.early_stopping
        with logged_failures(rule, f"trial {trial.id} at step {report.step}"):
            yield from verdicts_of(rule, report, self._history(trial, report.previous_step))

    def releases(self, paused: PausedTrials) -> Iterator[Release]:
        """The paused trials that the rule lets continue."""
        rule = self.spec.early_stopping
        with logged_failures(rule, "paused trials"):
            yield from releases_of(rule, paused)

    def record(self, trial: TrialRow, decision: str, step: int, said: Verdict | Release) -> None:
        locked, attempt = self.locked, trial.attempt_count
        facts = {
            "decision": decision,
            "rule": self.spec.early_stopping.rule,
            "metric": self.spec.compared_metric.name,
            "step": step,
            **said.grounds(),
        }
        row = {"trial_id": trial.id, "attempt": attempt, "at": locked.now, **facts}
        add_later(locked.session, DecisionRow, row)
        data = {"attempt": attempt, **facts}
        append_event(locked.session, locked.experiment, "decision", data, at=locked.now, trial_id=trial.id)

    def record_end(self, trial: TrialRow) -> None:
        """Let rules that compare with trials that ran to their ends see this one."""
        rule, history = self.spec.early_stopping, self._history(trial, trial.judged_step)
        if not has_trait(rule, "keeps_ends") or trial.confirms is not None:
            return
        with logged_failures(rule, f"the end of trial {trial.id}"):
            last = history.last_value()
            value = None if last is None else value_at_end(rule, last, history)
            if value is not None:
                history.complete(value, is_compared=has_trait(rule, "compares_completed"))

    def withdraw_end(self, trial: TrialRow) -> None:
        """Undo `record_end`: the trial is retried, so it has no end any more.

        Also if the rule says now that it keeps none, or fails to say where the trial is compared while it runs.
        """
        if trial.confirms is not None:
            return
        rule, pool = self.spec.early_stopping, ALL
        with logged_failures(rule, f"the retry of trial {trial.id}"):
            pool = pool_of(rule, trial.number, stored_bracket_of(trial))
        self._history(trial, trial.judged_step).reopen(pool)

    def _history(self, trial: TrialRow, previous_step: int | None) -> StoredHistory:
        metric = self.spec.compared_metric.name
        other = None if metric == self.spec.objective.metric else metric
        return StoredHistory(self.locked.session, trial, other, previous_step)
