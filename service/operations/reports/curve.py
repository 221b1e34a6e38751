"""Adds reports to a trial's curve, and acts on them: the trial's values, targets, early stopping."""

import reprlib
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from sqlalchemy import select

from search.constraints import total_violation
from search.mistakes import Mistake
from search.problem import sign_of
from search.reported_numbers import is_number, number_in
from service.domain.end_reasons import EndReason
from service.domain.statuses import FAILED_BY_REPORT, StopCause
from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import release
from service.operations.experiments.experiment_end import begin_ending
from service.operations.reports.checkpoints import add_value
from service.operations.transitions import request_stop
from service.runtime.search_view.targets_and_constraints import known_values, targets_reached
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.experiments import may_run_trials
from service.store.sql.write_session import add_later, change_later
from service.store.tables import ReportRow, TrialRow, UncountedReportRow
from service.store.trials.trials import best_report_of
from trainer.wire import MAX_COUNT, Report, storable_float, storable_text

_TYPE_NAMES: Mapping[type, str] = {list: "a list", NoneType: "null"}

MAX_DEPTH = 20
"""Metrics that are nested deeper are cut off, because some JSON parsers refuse them."""


def steps_of(leased: LeasedAttempt, reports: Sequence[Report]) -> dict[int, int]:
    """Return each report's step by its sequence. Raises Invalid before anything is changed."""
    steps: dict[int, int] = {}
    for report in reports:
        if report.sequence not in steps:
            is_repeat = report.sequence < leased.attempt.next_sequence
            stored = _stored_point(leased, report.sequence) if is_repeat else None
            if stored is not None:
                _check_repeat(leased, report, stored)
            steps[report.sequence] = _step_of(leased, report) if stored is None else stored.step
    return steps


def _check_repeat(leased: LeasedAttempt, report: Report, stored: ReportRow) -> None:
    """Raise Invalid for other metrics than those of the newest report, whose number their caller has not counted up.

    Of an older report it is unknown: later ones may have been merged into its point.
    """
    following = leased.attempt.next_sequence
    if report.sequence == following - 1 and _storable(report.metrics) != stored.metrics:
        earlier = f"{report.sequence} is the number of an earlier report with other metrics"
        raise Invalid([Mistake(("sequence",), f"{earlier}; the next one is {following}")])


def add_point(leased: LeasedAttempt, report: Report, step: int) -> None:
    """Store the report, except for what an earlier attempt has reported for the step already.

    Several reports of one attempt at a step are merged into one point.
    """
    trial = leased.trial
    metrics = _store(leased, report, step)
    if metrics is None:
        return
    takes_best = leased.spec.objective.takes_best
    counted = metrics if takes_best else _newest(leased, metrics, step)
    change_later(trial, last_step=max(step, trial.last_step or step))
    has_values = _update_objectives(leased, counted, step)
    data = {"attempt": leased.attempt.number, "sequence": report.sequence, "step": step, "metrics": _storable(metrics)}
    data |= {"is_best": trial.best_step == step} if takes_best else {}
    append_event(leased.session, leased.experiment, "report", data, at=leased.now, trial_id=trial.id)
    if has_values and trial.confirms is None:
        _check_targets(leased)
    decider = Decider(leased.session, leased.experiment, leased.spec, leased.now)
    judged = decider.judge(trial, step, metrics)
    if judged and leased.spec.early_stopping.pauses and may_run_trials(leased.experiment):  # others may continue now
        release(decider, judged)


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


def _store(leased: LeasedAttempt, report: Report, step: int) -> dict[str, Any] | None:
    """The metrics that count, or None if the whole point is an earlier attempt's."""
    trial, attempt = leased.trial, leased.attempt.number
    is_new = trial.last_step is None or step > trial.last_step
    existing = None if is_new else leased.session.get(ReportRow, (trial.id, step))
    if existing is None:
        row = {"trial_id": trial.id, "step": step, "attempt": attempt, "sequence": report.sequence}
        facts = {"metrics": _storable(report.metrics), "value": _objective_in(leased, report.metrics)}
        add_later(leased.session, ReportRow, {**row, **facts, "at": leased.now})
        return report.metrics
    is_own = existing.attempt == attempt
    metrics = report.metrics if is_own else _lacking(leased.spec, existing, report.metrics)
    if not is_own and not metrics:
        return None
    value = _objective_in(leased, metrics)
    if value is not None:
        add_value(leased, step, value)
    existing.metrics = {**existing.metrics, **_storable(metrics)}
    existing.value = existing.value if value is None else value
    return metrics


def _objective_in(leased: LeasedAttempt, metrics: Mapping[str, Any]) -> float | None:
    return number_in(metrics, leased.spec.objective.metric)


def _lacking(spec: ExperimentSpec, point: ReportRow, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier attempt has not reported for the step, or only as no number, as it diverged.

    That attempt may have been lost between two reports of the step.
    """
    compared = _compared_names(spec)

    def is_known(name: str) -> bool:
        return name in point.metrics and (name not in compared or number_in(point.metrics, name) is not None)

    return {name: value for name, value in metrics.items() if not is_known(storable_text(name))}


def _newest(leased: LeasedAttempt, metrics: Mapping[str, Any], step: int) -> Mapping[str, Any]:
    """The metrics that become the trial's newest values.

    An attempt that trains again up to a step that an earlier one has reached brings no newer values before it.
    """
    trial, last = leased.trial, leased.trial.last_step
    if last is None or step >= last:
        return metrics
    reached = leased.session.get(ReportRow, (trial.id, last))
    if reached is None or reached.attempt == leased.attempt.number:
        return metrics
    known, objectives = known_values(leased.spec, trial), {one.metric for one in leased.spec.objectives}
    diverged = {name for name in objectives if number_in(metrics, name) is None}
    return {name: value for name, value in metrics.items() if name not in known or name in diverged}


def _compared_names(spec: ExperimentSpec) -> set[str]:
    return {one.metric for one in spec.objectives} | {one.metric for one in spec.constraints}


def _update_objectives(leased: LeasedAttempt, metrics: Mapping[str, Any], step: int) -> bool:
    """Take the newest values, or the best one. Return whether the report has a metric of objectives or constraints.

    An objective that is NaN or infinite stops the trial as diverged, and one that is no number as an error of its code.
    A constraint's metric that is not a finite number becomes unknown, and the trial infeasible, until a later report
    has a number.
    """
    spec, trial, names = leased.spec, leased.trial, _compared_names(leased.spec)
    reported = {name: number_in(metrics, name) for name in names if name in metrics}
    for objective in spec.objectives:
        if objective.metric in reported and reported[objective.metric] is None:
            request_stop(trial, *_why_no_value(objective.metric, metrics[objective.metric], step))
    first = reported.get(spec.objective.metric)
    if first is not None and spec.objective.takes_best:
        _take_if_best(leased, first, step)
    elif first is not None:
        change_later(trial, value=first)
    if reported and (len(names) > 1 or spec.constraints):
        _update_values(spec, trial, reported)
    return bool(reported)


def _take_if_best(leased: LeasedAttempt, value: float, step: int) -> None:
    """Of values that tie, the one of the first step is the best.

    A further report of the best step may have replaced its value by a worse one.
    """
    trial, sign = leased.trial, sign_of(leased.spec.objective.direction)
    if trial.value is None or trial.best_step is None or (sign * value, step) < (sign * trial.value, trial.best_step):
        change_later(trial, value=value, best_step=step)
    elif step == trial.best_step:
        best, best_step = best_report_of(leased.session, trial.id, leased.spec.objective.direction)
        change_later(trial, value=best, best_step=best_step)


def _why_no_value(metric: str, given: Any, step: int) -> tuple[StopCause, str]:
    """Why an objective that is not a finite number stops the trial."""
    if is_number(given):
        return StopCause.DIVERGED, f"diverged: {metric} is {_shown_number(given)} at step {step}"
    what = f"the text {reprlib.repr(given)}" if isinstance(given, str) else _TYPE_NAMES.get(type(given), "an object")
    return StopCause.BAD_OBJECTIVE, f"the objective {metric} must be a number; the trial reported {what} at step {step}"


def _shown_number(given: float | str) -> float | str:
    try:
        return storable_float(float(given))
    except OverflowError:
        return "a whole number that no float can be"


def _update_values(spec: ExperimentSpec, trial: TrialRow, reported: Mapping[str, float | None]) -> None:
    unknown = {one.metric for one in spec.constraints if one.metric in reported and reported[one.metric] is None}
    newest = {**(trial.values or {}), **{name: value for name, value in reported.items() if value is not None}}
    values = {name: value for name, value in newest.items() if name not in unknown}
    is_complete = all(one.metric in values for one in spec.constraints)
    trial.values = values
    trial.violation = total_violation(spec.constraints, values) if spec.constraints and is_complete else None


def _check_targets(leased: LeasedAttempt) -> None:
    has_failed = leased.trial.stop_cause in FAILED_BY_REPORT
    reached = None if has_failed else targets_reached(leased.spec, leased.trial)
    if reached:
        request_stop(leased.trial, StopCause.TARGET_REACHED, reached)
        detail = f"trial {leased.trial.number}: {reached}"
        begin_ending(leased.session, leased.experiment, EndReason.TARGET_REACHED, leased.now, detail)


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
    return storable_text(value) if isinstance(value, str) else _storable_number(value)


def _storable_number(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return storable_float(value) if isinstance(value, float) else value
