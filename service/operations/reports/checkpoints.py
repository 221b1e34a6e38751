"""Keeps track of the newest checkpoints of a trial, and of those that are pinned."""

from collections.abc import Collection, Sequence

from search.mistakes import Mistake
from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt
from service.operations.checkpoints.folders import chooses_server, is_below
from service.store.checkpoints.checkpoints import checkpoint_at, count_bytes
from service.store.events import append_event
from service.store.tables import CheckpointRow
from service.store.trials.trials import checkpoints_of
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


def add_checkpoint(leased: LeasedAttempt, step: int, sequence: int, uri: str, size: int | None) -> list[str]:
    """Keep the trial's last `checkpoints.keep` checkpoints, in the order of attempts and reports; one for each step.

    Pinned ones are kept, too. While one is, the URIs of all that are kept are returned: the slot, which counts only the
    newest, must not remove them.
    """
    saved = checkpoints_of(leased.session, leased.trial.id)
    kept = _kept_with(leased, saved, step, sequence, uri, size)
    return [row.uri for row in kept] if any(row.pinned_at for row in kept) else []


def _kept_with(
    leased: LeasedAttempt, saved: Sequence[CheckpointRow], step: int, sequence: int, uri: str, size: int | None
) -> Sequence[CheckpointRow]:
    """Store the checkpoint, unless it was dropped before, and drop what it replaces; returns those that are left.

    A checkpoint that has been dropped is not added again by a repeated report: the slot has removed its files. One at
    the step of a pinned one is not added either.
    """
    keep, position = leased.spec.checkpoints.keep, (leased.attempt.number, sequence)
    if sum(_position(row) > position for row in saved) >= keep:
        return saved
    row = checkpoint_at(leased.session, leased.trial.id, step)
    if row is None:
        row = CheckpointRow(trial_id=leased.trial.id, step=step)
        leased.session.add(row)
    elif row in saved:
        if _stays(row, leased.attempt.number, sequence, uri):
            return saved
        if row.attempt != leased.attempt.number:
            # This attempt replaces what an earlier one saved at the step; its slot has removed all that came before.
            saved = _drop(leased, saved, [one for one in saved if _position(one) < _position(row)])
    _set(leased, row, sequence, uri, size)
    rows = sorted({*saved, row}, key=_position)
    return _drop(leased, rows, rows[:-keep])


def _stays(row: CheckpointRow, attempt: int, sequence: int, uri: str) -> bool:
    """Whether the step's checkpoint is not replaced: it is the same one or newer, or is pinned."""
    is_same_or_newer = row.attempt == attempt and (row.uri == uri or row.sequence > sequence)
    return is_same_or_newer or row.pinned_at is not None


def _set(leased: LeasedAttempt, row: CheckpointRow, sequence: int, uri: str, size: int | None) -> None:
    count_bytes(leased.experiment, added=size, removed=row.bytes if row.removed_at is None else None)
    row.attempt, row.sequence, row.uri, row.bytes = leased.attempt.number, sequence, uri, size
    row.at, row.pinned_at, row.removed_at, row.removed_why = leased.now, None, None, None
    data = {"attempt": row.attempt, "step": row.step, "uri": uri, "bytes": size}
    append_event(leased.session, leased.experiment, "checkpoint", data, at=leased.now, trial_id=leased.trial.id)


def _position(row: CheckpointRow) -> tuple[int, int]:
    return row.attempt, row.sequence


def _drop(
    leased: LeasedAttempt, rows: Sequence[CheckpointRow], dropped: Collection[CheckpointRow]
) -> list[CheckpointRow]:
    """Delete the dropped rows that are not pinned; returns those that are left."""
    for row in dropped:
        if row.pinned_at is None:
            count_bytes(leased.experiment, removed=row.bytes)
            leased.session.delete(row)
    return [row for row in rows if row not in dropped or row.pinned_at is not None]
