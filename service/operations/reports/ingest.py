"""Reports of running attempts: stored once, judged at once, answered after the commit."""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from search.early_stopping.compared_metric import number_in
from service.domain.statuses import EndReason, StopCause
from service.errors import Invalid, Mistake
from service.operations.attempts.leases import Held, check_lease, hold, hold_all
from service.operations.early_stopping.evaluate import judge
from service.operations.early_stopping.paused_trials import has_released
from service.operations.experiments.termination import begin_end
from service.operations.trials.stop_request import ask_to_stop
from service.runtime.context import Context
from service.runtime.objective_values import take_values, targets_reached
from service.store.events import append_event
from service.store.sql.database import is_away
from service.store.sql.write_session import add_later, change_later
from service.store.tables import CheckpointRow, ReportRow, TrialRow
from service.store.trials import checkpoints_of
from trainer.wire import MAX_COUNT, Answer, Decision, Report, mended

MAX_DEPTH = 20
"""Metrics nested deeper are cut off there; nobody reads them, and readers of JSON give up on them."""


@dataclass(frozen=True)
class Sent:
    """The reports of one call, and whose they are."""

    trial_id: str
    token: str | None
    reports: Sequence[Report]


def take_together(context: Context, calls: Sequence[Sent]) -> list[Answer | Exception]:
    """What many send at once, in one transaction: the disk is waited for once. Who is refused changes nothing.

    Idempotent by (attempt, sequence). An answer may be LeaseLost, Unauthorized or Invalid.
    """
    try:
        return _take_together(context, calls)
    except (DBAPIError, PoolTimeout) as error:
        if len(calls) == 1 or is_away(error):
            return [error] * len(calls)
    except Exception as error:  # noqa: BLE001 - answered to the one whose call it is
        if len(calls) == 1:
            return [error]
    # One of them is more than the database, or we, can take; the others are none the worse for it.
    return [answer for call in calls for answer in take_together(context, [call])]


def _take_together(context: Context, calls: Sequence[Sent]) -> list[Answer | Exception]:
    with context.database.write() as session:
        holders = hold_all(session, [(call.trial_id, call.token) for call in calls])
        open_before = {held.experiment for held in holders if isinstance(held, Held) and not held.experiment.end_reason}
        answers: list[Answer | Exception] = [
            held if isinstance(held, Exception) else _take_call(context, held, call)
            for held, call in zip(holders, calls, strict=True)
        ]
    context.changed.ring()
    if has_released(session):
        context.freed.ring()
    if any(experiment.end_reason for experiment in open_before):
        context.told.ring()
    return answers


def _take_call(context: Context, held: Held, call: Sent) -> Answer | Invalid:
    reports = sorted(call.reports, key=lambda report: report.sequence)
    try:
        steps = _steps_of(held, reports)
    except Invalid as refused:
        return refused
    held.extend(context.settings.lease_seconds)
    for report in reports:
        _take(held, report, steps[report.sequence])
    return answer_to(held.trial)


def take_heartbeat(context: Context, trial_id: str, token: str | None) -> Answer:
    """Extends the lease. Raises LeaseLost, Unauthorized."""
    with context.database.write() as session:
        held = hold(session, trial_id, token)
        held.extend(context.settings.lease_seconds)
        return answer_to(held.trial)


def look_for_news(context: Context, trial_id: str, token: str | None) -> Answer:
    """What the holder is to do now. Changes nothing. Raises LeaseLost, Unauthorized."""
    with context.database.read() as session:
        check_lease(session, trial_id, token)
        return answer_to(session.get_one(TrialRow, trial_id))


def answer_to(trial: TrialRow) -> Answer:
    if trial.killed:
        return Answer(decision=Decision.KILL, reason=trial.stop_reason)
    if trial.stop_cause is not None:
        return Answer(decision=Decision.STOP, reason=trial.stop_reason)
    return Answer()


def _take(held: Held, report: Report, step: int) -> None:
    attempt = held.attempt
    if report.sequence >= attempt.next_sequence:
        change_later(attempt, next_sequence=report.sequence + 1, last_report_at=held.now)
        _add_to_curve(held, report, step)
    if report.checkpoint is not None:
        _add_checkpoint(held, step, report.sequence, report.checkpoint)


def _steps_of(held: Held, reports: Sequence[Report]) -> dict[int, int]:
    """Each report's step by its sequence, found out before anything is changed. Raises Invalid."""
    steps: dict[int, int] = {}
    for report in reports:
        if report.sequence not in steps:
            is_repeat = report.sequence < held.attempt.next_sequence
            steps[report.sequence] = _step_of_repeat(held, report) if is_repeat else _step_of(held, report)
    return steps


def _step_of(held: Held, report: Report) -> int:
    if report.step is not None:
        return report.step
    name = held.spec.step_metric
    if name is None:
        return held.attempt.first_step + report.sequence
    if name not in report.metrics:
        known = ", ".join(sorted(report.metrics)) or "none"
        raise Invalid(
            [Mistake(f"metrics.{name}", f"is the experiment's step_metric and must be reported; got: {known}")]
        )
    step = report.metrics[name]
    if not _is_step(step):
        raise Invalid(
            [Mistake(f"metrics.{name}", f"is the step and must be a whole number from 0 to 2^53, not {_quoted(step)}")]
        )
    return int(step)


def _is_step(value: Any) -> bool:
    # The order matters: what is not finite has no int.
    return type(value) in {int, float} and 0 <= value <= MAX_COUNT and value == int(value)


def _step_of_repeat(held: Held, report: Report) -> int:
    query = select(ReportRow.step).where(
        ReportRow.trial_id == held.trial.id,
        ReportRow.attempt == held.attempt.number,
        ReportRow.sequence == report.sequence,
    )
    step = held.session.scalar(query)
    return _step_of(held, report) if step is None else step


def _add_to_curve(held: Held, report: Report, step: int) -> None:
    """The first attempt at a step decides its values; several reports of one attempt at a step are one point."""
    existing = _point_at(held, step)
    if existing is not None and existing.attempt != held.attempt.number:
        return
    metrics = _storable(report.metrics)
    value = number_in(report.metrics, held.spec.objective.metric)
    if existing is None:
        add_later(held.session, ReportRow, _row(held, report, step, metrics, value))
    else:
        existing.metrics = {**existing.metrics, **metrics}
        existing.value = existing.value if value is None else value
    _append(held, step, report.sequence, metrics)
    change_later(held.trial, last_step=max(step, held.trial.last_step or step))
    if take_values(held.spec, held.trial, report.metrics):
        _look_for_targets(held)
    judge(held, step, report.metrics)


def _point_at(held: Held, step: int) -> ReportRow | None:
    if held.trial.last_step is None or step > held.trial.last_step:
        return None
    held.session.flush()
    return held.session.get(ReportRow, (held.trial.id, step))


def _row(held: Held, report: Report, step: int, metrics: dict[str, Any], value: float | None) -> dict[str, Any]:
    return {
        "trial_id": held.trial.id,
        "step": step,
        "attempt": held.attempt.number,
        "sequence": report.sequence,
        "metrics": metrics,
        "value": value,
        "at": held.now,
    }


def _append(held: Held, step: int, sequence: int, metrics: dict[str, Any]) -> None:
    data = {"attempt": held.attempt.number, "sequence": sequence, "step": step, "metrics": metrics}
    append_event(held.session, held.experiment, "report", data, at=held.now, trial_id=held.trial.id)


def _look_for_targets(held: Held) -> None:
    reached = targets_reached(held.spec, held.trial)
    if reached:
        ask_to_stop(held.trial, StopCause.TARGET_REACHED, reached)
        detail = f"trial {held.trial.number}: {reached}"
        begin_end(held.session, held.experiment, EndReason.TARGET_REACHED, held.now, detail)


def _quoted(value: Any) -> str:
    return reprlib.repr(value)


def _storable(value: Any, depth: int = 0) -> Any:
    """What any reader of JSON and any database takes: text that is text, numbers that fit, an end to the nesting."""
    if isinstance(value, dict | list) and depth == MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        return {mended(name): _storable(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_storable(inner, depth + 1) for inner in value]
    return mended(value) if isinstance(value, str) else _number(value)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinities, and its readers no larger integers: they are kept as text."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _add_checkpoint(held: Held, step: int, sequence: int, uri: str) -> None:
    """Of the trial's checkpoints the last ones stand, by its attempts' and their reports' order; a step has one.

    One that was forgotten stays so, however late its report is repeated: the slot has removed it by then.
    """
    saved = checkpoints_of(held.session, held.trial.id)
    keep, place = held.spec.checkpoints.keep, (held.attempt.number, sequence)
    if sum(_saved_as(row) > place for row in saved) >= keep:
        return
    row = held.session.get(CheckpointRow, (held.trial.id, step))
    if row is not None and row.attempt == held.attempt.number and (row.uri == uri or row.sequence > sequence):
        return
    if row is None:
        row = CheckpointRow(trial_id=held.trial.id, step=step)
        held.session.add(row)
    elif row.attempt != held.attempt.number:
        # With what an earlier attempt had saved of this step, the slot counts as gone what came before.
        _forget(held, [one for one in saved if _saved_as(one) < _saved_as(row)])
    row.attempt, row.sequence, row.uri, row.at = held.attempt.number, sequence, uri, held.now
    data = {"attempt": held.attempt.number, "step": step, "uri": uri}
    append_event(held.session, held.experiment, "checkpoint", data, at=held.now, trial_id=held.trial.id)
    _forget(held, sorted({*saved, row}, key=_saved_as)[:-keep])


def _saved_as(row: CheckpointRow) -> tuple[int, int]:
    return row.attempt, row.sequence


def _forget(held: Held, rows: Sequence[CheckpointRow]) -> None:
    for row in rows:
        held.session.delete(row)
