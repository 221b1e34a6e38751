"""What early stopping says to a report: a function of the stored curves, stored with what it looked at."""

from collections.abc import Mapping
from typing import Any

from search.early_stopping import Reported, Verdict, decide, rule_for
from search.early_stopping.measure import Measure, number_in
from service.domain.statuses import StopCause
from service.operations.ending import ask_to_stop
from service.operations.leases import Held
from service.store.events import append_event
from service.store.peers import StoredHistory
from service.store.tables import DecisionRow


def judge(held: Held, step: int, metrics: Mapping[str, Any]) -> None:
    """Judges each milestone that the trial reaches with this report, up to the first that stops it.

    A report without the metric that early stopping looks at says nothing.
    """
    trial, measure = held.trial, held.spec.measure
    value = number_in(metrics, measure.metric)
    if value is None:
        return
    report = Reported(trial.number, measure.metric, measure.direction, step, value, trial.judged_step)
    trial.judged_step = max(step, trial.judged_step or step)
    if trial.stop_cause is not None:
        return
    history = _history(held, report.previous_step)
    with held.session.no_autoflush:  # the history writes its part at once, and flushes where it reads the rest
        for verdict in decide(rule_for(held.spec.early_stopping), report, history):
            _record(held, measure, verdict)


def note_completion(held: Held) -> None:
    """A trial that has completed is what some rules compare others with."""
    if rule_for(held.spec.early_stopping).compares_completed:
        _history(held, None).complete()


def _history(held: Held, previous_step: int | None) -> StoredHistory:
    metric = held.spec.measure.metric
    return StoredHistory(
        held.session, held.trial, None if metric == held.spec.objective.metric else metric, previous_step
    )


def _record(held: Held, measure: Measure, verdict: Verdict) -> None:
    facts = {
        "decision": "stop" if verdict.stop else "continue",
        "rule": verdict.rule,
        "metric": measure.metric,
        "step": verdict.step,
        "milestone": verdict.milestone,
        "value": verdict.value,
        "cutoff": verdict.cutoff,
        "compared_count": verdict.compared_count,
        "compared_with": list(verdict.compared_with),
        "reason": verdict.reason,
    }
    held.session.add(DecisionRow(trial_id=held.trial.id, attempt=held.attempt.number, at=held.now, **facts))
    data = {"attempt": held.attempt.number, **facts}
    append_event(held.session, held.experiment, "decision", data, at=held.now, trial_id=held.trial.id)
    if verdict.stop:
        ask_to_stop(held.trial, StopCause.EARLY_STOPPING, verdict.reason)
