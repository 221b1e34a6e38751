"""Adds reports to a trial's curve, with what follows from them for its values and targets."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from search.mistakes import Mistake
from search.reported_numbers import number_in
from service.domain.end_reasons import EndReason
from service.domain.statuses import FAILED_BY_REPORT, StopCause
from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt
from service.operations.early_stopping.decisions import is_judged
from service.operations.experiments.experiment_end import begin_ending
from service.operations.reports.checkpoints import add_value
from service.operations.reports.objective_values import newer_values, take_values
from service.operations.transitions import request_stop
from service.runtime.observations.targets_and_constraints import targets_reached
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.sql.bulk_writes import add_later, change_later
from service.store.tables import ReportRow, UncountedReportRow
from trainer.wire import MAX_COUNT, Report, storable_float, storable_text

MAX_DEPTH = 20
"""Metrics that are nested deeper are cut off, because some JSON parsers refuse them."""


def steps_of(leased: LeasedAttempt, reports: Sequence[Report]) -> dict[int, int]:
    """Return each report's step by its sequence. Raises Invalid before anything is changed."""
    steps: dict[int, int] = {}
    first: dict[int, Report] = {}
    for report in reports:
        if report.sequence in steps:
            _check_twin(first[report.sequence], report)
            continue
        is_repeat = report.sequence < leased.attempt.next_sequence
        stored = _stored_point(leased, report.sequence) if is_repeat else None
        if stored is not None:
            _check_repeat(leased, report, stored)
        steps[report.sequence] = _step_of(leased, report) if stored is None else stored.step
        first[report.sequence] = report
    return steps


def _check_twin(first: Report, second: Report) -> None:
    """Raise Invalid for two reports of one call that have the same number and are not the same: one would be lost."""
    if second.step != first.step or _storable(second.metrics) != _storable(first.metrics):
        twins = f"two different reports of this call have the sequence {second.sequence}"
        raise Invalid([Mistake(("sequence",), f"{twins}; each report counts it up by one")])


def _check_repeat(leased: LeasedAttempt, report: Report, stored: ReportRow) -> None:
    """Raise Invalid for other metrics than those of the newest report, whose number their caller has not counted up.

    Of an older report it is unknown: later ones may have been merged into its point.
    """
    following = leased.attempt.next_sequence
    if report.sequence == following - 1 and _storable(report.metrics) != stored.metrics:
        earlier = f"report {report.sequence} was sent before, with other metrics"
        raise Invalid([Mistake(("sequence",), f"{earlier}; the next report has the sequence {following}")])


def add_point(leased: LeasedAttempt, report: Report, step: int) -> Mapping[str, Any] | None:
    """Store the report, except for what an earlier attempt has reported for the step already.

    Several reports of one attempt at a step are merged into one point. Returns the metrics that count; None if the
    whole point is an earlier attempt's.
    """
    trial = leased.trial
    found = _store(leased, report, step)
    if found is None:
        return None
    metrics, stored = found
    takes_best = leased.spec.objective.takes_best
    counted = metrics if takes_best else newer_values(leased, metrics, step)
    change_later(trial, last_step=max(step, trial.last_step or step))
    has_values = take_values(leased, counted, step)
    reached = _stop_at_targets(leased) if has_values and trial.confirms is None else None
    data = {"attempt": leased.attempt.number, "sequence": report.sequence, "step": step, "metrics": stored}
    data |= {"is_best": trial.best_step == step} if takes_best else {}
    data |= {} if is_judged(trial) else {"judged": False}
    append_event(leased.session, leased.experiment, "report", data, at=leased.now, trial_id=trial.id)
    if reached:
        begin_ending(leased, EndReason.TARGET_REACHED, f"trial {trial.number}: {reached}")
    return metrics


def _stop_at_targets(leased: LeasedAttempt) -> str | None:
    """Ask the trial to stop if it has reached the targets. Return which, in words, to end the experiment with."""
    has_failed = leased.trial.stop_cause in FAILED_BY_REPORT
    reached = None if has_failed else targets_reached(leased.spec, leased.trial)
    if reached:
        request_stop(leased.trial, StopCause.TARGET_REACHED, reached)
    return reached


def set_aside(leased: LeasedAttempt, report: Report, step: int) -> None:
    """Store a report that was made after the deciding one. Nothing else takes notice of it."""
    session, trial, attempt = leased.session, leased.trial, leased.attempt
    facts = {
        "attempt": attempt.number,
        "sequence": report.sequence,
        "step": step,
        "metrics": _storable(report.metrics),
        "reason": f"made after report {attempt.deciding_sequence}, which ended the attempt: {trial.stop_reason}",
    }
    add_later(session, UncountedReportRow, {"trial_id": trial.id, "at": leased.now, **facts})
    append_event(session, leased.experiment, "report.uncounted", facts, at=leased.now, trial_id=trial.id)


def _store(leased: LeasedAttempt, report: Report, step: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The metrics that count, as reported and as stored, or None if the whole point is an earlier attempt's."""
    trial, attempt, objective = leased.trial, leased.attempt.number, leased.spec.objective.metric
    is_new = trial.last_step is None or step > trial.last_step
    existing = None if is_new else leased.session.get(ReportRow, (trial.id, step))
    if existing is None:
        row = {"trial_id": trial.id, "step": step, "attempt": attempt, "sequence": report.sequence}
        stored = _storable(report.metrics)
        facts = {"metrics": stored, "value": number_in(report.metrics, objective)}
        add_later(leased.session, ReportRow, {**row, **facts, "at": leased.now})
        return report.metrics, stored
    is_own = existing.attempt == attempt
    metrics = report.metrics if is_own else _lacking(leased.spec, existing, report.metrics)
    if not is_own and not metrics:
        return None
    value = number_in(metrics, objective)
    if value is not None:
        add_value(leased, step, value)
    stored = _storable(metrics)
    existing.metrics = {**existing.metrics, **stored}
    existing.value = existing.value if value is None else value
    return metrics, stored


def _lacking(spec: ExperimentSpec, point: ReportRow, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier attempt has not reported for the step, or only as no number, as it diverged.

    That attempt may have been lost between two reports of the step.
    """

    def is_known(name: str) -> bool:
        return name in point.metrics and (name not in spec.valued_metrics or number_in(point.metrics, name) is not None)

    return {name: value for name, value in metrics.items() if not is_known(storable_text(name))}


def _stored_point(leased: LeasedAttempt, sequence: int) -> ReportRow | None:
    query = select(ReportRow).where(
        ReportRow.trial_id == leased.trial.id,
        ReportRow.attempt == leased.attempt.number,
        ReportRow.sequence == sequence,
    )
    return leased.session.scalar(query)


def _step_of(leased: LeasedAttempt, report: Report) -> int:
    if report.step is not None:
        return report.step
    name = leased.spec.step_metric
    if name is None:
        return leased.attempt.first_step + report.sequence
    if name not in report.metrics:
        known = ", ".join(sorted(report.metrics)) or "none"
        raise Invalid(
            [Mistake(("metrics", name), f"is the experiment's step_metric and must be reported; got: {known}")]
        )
    step = report.metrics[name]
    if not _is_step(step):
        shown = reprlib.repr(step)
        raise Invalid(
            [Mistake(("metrics", name), f"is the step and must be a whole number from 0 to 2^53, not {shown}")]
        )
    return int(step)


def _is_step(value: Any) -> bool:
    # The order matters: int() of an infinite or NaN value raises.
    return type(value) in {int, float} and 0 <= value <= MAX_COUNT and value == int(value)


def _storable(value: Any, depth: int = 0) -> Any:
    """Replace invalid characters; turn NaN, infinities and integers beyond 64 bits, which JSON lacks, into text."""
    if isinstance(value, dict | list) and depth == MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        return {storable_text(name): _storable(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_storable(inner, depth + 1) for inner in value]
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return storable_float(value)
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
