"""Keeps track of the newest checkpoints of a trial, of the best one, and of those that are pinned."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from search.mistakes import Mistake
from search.problem import sign_of
from search.reported_numbers import number_in
from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt
from service.operations.checkpoints.folders import chooses_server, is_below
from service.store.checkpoints.checkpoints import best_of, checkpoint_at, checkpoints_of, count_bytes
from service.store.checkpoints.missing_checkpoints import missing_checkpoints, uncounted_checkpoints
from service.store.events import append_event
from service.store.tables import CheckpointRow, ReportRow
from trainer.wire import Kind, Report


def check_checkpoints(leased: LeasedAttempt, reports: Sequence[Report], storage: str) -> None:
    """Raise Invalid for a URI that names the server to which the service or an agent would send its credentials.

    Neither opens what a caller of `kind: external` has saved elsewhere, so that may be any text.
    """
    is_external = leased.spec.trainer.kind is Kind.EXTERNAL
    for uri in (report.checkpoint for report in reports if report.checkpoint is not None):
        if chooses_server(uri, storage) and (is_below(uri, storage) or not is_external):
            message = "must be in the service's storage (PACELINE_STORAGE), and have no query or that of the storage"
            raise Invalid([Mistake(("checkpoint",), message)])


@dataclass(frozen=True)
class _Saved:
    """A checkpoint that a report has saved. `value`: that of the first objective, None if it is not known."""

    step: int
    sequence: int
    uri: str
    size: int | None
    value: float | None


def add_checkpoint(leased: LeasedAttempt, report: Report, step: int) -> list[str]:
    """Keep the trial's last `checkpoints.keep` checkpoints, in the order of attempts and reports; one for each step.

    Pinned ones are kept, too, and with `report: best` the best one. The URIs of all that are kept are returned, if the
    report has a checkpoint: the slot removes the others, so that its storage has what is listed here. A slot of an
    earlier version counts the newest by itself, and removes none of the returned ones.
    """
    if report.checkpoint is None:
        return []
    saved = checkpoints_of(leased.session, leased.trial.id)
    value = _value_with(leased, report, step)
    new = _Saved(step, report.sequence, report.checkpoint, report.checkpoint_bytes, value)
    return [row.uri for row in _kept_with(leased, saved, new)]


def kept_without(leased: LeasedAttempt, report: Report) -> list[str]:
    """As `add_checkpoint`, for a report that does not count: its checkpoint is not among those that are kept."""
    if report.checkpoint is None:
        return []
    return [row.uri for row in checkpoints_of(leased.session, leased.trial.id)]


def add_value(leased: LeasedAttempt, step: int, value: float) -> None:
    """The newest value of a step whose checkpoint the attempt has saved with an earlier report."""
    row = checkpoint_at(leased.session, leased.trial.id, step)
    if row is not None and row.attempt == leased.attempt.number:
        row.value = value


def _value_with(leased: LeasedAttempt, report: Report, step: int) -> float | None:
    """The value that the attempt itself has reported: another attempt's at the step is not that of these weights."""
    point = leased.session.get(ReportRow, (leased.trial.id, step))
    if point is not None and point.attempt == leased.attempt.number:
        return point.value
    return number_in(report.metrics, leased.spec.objective.metric)


def _kept_with(leased: LeasedAttempt, saved: Sequence[CheckpointRow], new: _Saved) -> Sequence[CheckpointRow]:
    """Store the checkpoint, unless it was dropped before, and drop what it replaces; returns those that are left.

    A checkpoint that has been dropped is not added again by a repeated report: the slot has removed its files. One at
    the step of a pinned one is not added either, nor is one that is no better than an earlier attempt's best one there,
    unless that one is missing on the storage.
    """
    keep, position = leased.spec.checkpoints.keep, (leased.attempt.number, new.sequence)
    if sum(_position(row) > position for row in saved) >= keep:
        return saved
    row = checkpoint_at(leased.session, leased.trial.id, new.step)
    if row is None:
        row = CheckpointRow(trial_id=leased.trial.id, step=new.step)
        leased.session.add(row)
    elif row in saved:
        if _is_same_or_newer(row, leased.attempt.number, new) or _is_protected(leased, saved, row, new):
            return saved
        if row.attempt != leased.attempt.number and not _is_missing(leased, row):
            # This attempt replaces what an earlier one saved at the step, with all that came before: it starts anew.
            # One that continues from before a missing checkpoint does not.
            saved = _remove(leased, saved, [one for one in saved if _position(one) < _position(row)])
    _set(leased, row, new)
    rows = sorted({*saved, row}, key=_position)
    _append_event(leased, row, rows)
    return _remove(leased, rows, _before_newest(leased, rows))


def _before_newest(leased: LeasedAttempt, rows: Sequence[CheckpointRow]) -> Sequence[CheckpointRow]:
    """All that are older than the newest `checkpoints.keep`, of which missing ones do not count."""
    uncounted = uncounted_checkpoints(leased.session, leased.attempt)
    counted = [row for row in rows if row.uri not in uncounted]
    newest = counted[-leased.spec.checkpoints.keep :]
    return rows[: rows.index(newest[0])] if len(newest) == leased.spec.checkpoints.keep else []


def _is_same_or_newer(row: CheckpointRow, attempt: int, new: _Saved) -> bool:
    return row.attempt == attempt and (row.uri == new.uri or row.sequence > new.sequence)


def _is_protected(leased: LeasedAttempt, saved: Sequence[CheckpointRow], row: CheckpointRow, new: _Saved) -> bool:
    """Whether the step's checkpoint is not replaced although it is older: it is pinned or the best, and not missing."""
    if row.pinned_at is None and not _stays_best(leased, saved, row, new):
        return False
    return not _is_missing(leased, row)


def _is_missing(leased: LeasedAttempt, row: CheckpointRow) -> bool:
    return (row.trial_id, row.uri) in missing_checkpoints(leased.session, [row.trial_id])


def _stays_best(leased: LeasedAttempt, saved: Sequence[CheckpointRow], row: CheckpointRow, new: _Saved) -> bool:
    """Whether the step's checkpoint is the best one, from an earlier attempt, and the new one is no better."""
    if row.attempt == leased.attempt.number or row.uri == new.uri:  # then its files are the new ones
        return False
    if row is not _best_of(leased, saved) or row.value is None:
        return False
    sign = sign_of(leased.spec.objective.direction)
    return new.value is None or sign * new.value >= sign * row.value


def _best_of(leased: LeasedAttempt, rows: Sequence[CheckpointRow]) -> CheckpointRow | None:
    objective = leased.spec.objective
    return best_of(rows, objective.direction) if objective.takes_best else None


def _set(leased: LeasedAttempt, row: CheckpointRow, new: _Saved) -> None:
    count_bytes(leased.experiment, added=new.size, removed=row.bytes if row.removed_at is None else None)
    row.attempt, row.sequence, row.uri, row.bytes = leased.attempt.number, new.sequence, new.uri, new.size
    row.value, row.at = new.value, leased.now
    row.removed_at = row.removed_why = None  # a pin stays, on what replaces a missing checkpoint


def _append_event(leased: LeasedAttempt, row: CheckpointRow, rows: Sequence[CheckpointRow]) -> None:
    data = {"attempt": row.attempt, "step": row.step, "uri": row.uri, "bytes": row.bytes}
    if leased.spec.objective.takes_best:
        data["is_best"] = _best_of(leased, rows) in (row, None)
    append_event(leased.session, leased.experiment, "checkpoint", data, at=leased.now, trial_id=leased.trial.id)


def _position(row: CheckpointRow) -> tuple[int, int]:
    return row.attempt, row.sequence


def _remove(
    leased: LeasedAttempt, rows: Sequence[CheckpointRow], outdated: Collection[CheckpointRow]
) -> list[CheckpointRow]:
    """Remove the outdated rows that are neither pinned nor the best one; returns those that are left."""
    best = _best_of(leased, rows)
    unneeded = [row for row in outdated if row.pinned_at is None and row is not best]
    for row in unneeded:
        count_bytes(leased.experiment, removed=row.bytes)
        leased.session.delete(row)
    return [row for row in rows if row not in unneeded]
