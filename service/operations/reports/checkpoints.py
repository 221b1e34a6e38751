"""Keeps track of the newest checkpoints of a trial."""

from collections.abc import Sequence

from service.operations.attempts.leases import LeasedAttempt
from service.store.events import append_event
from service.store.tables import CheckpointRow
from service.store.trials import checkpoints_of


def add_checkpoint(leased: LeasedAttempt, step: int, sequence: int, uri: str) -> None:
    """Keep the trial's last `checkpoints.keep` checkpoints, in the order of attempts and reports; one for each step.

    A checkpoint that has been dropped is not added again by a repeated report: the slot has removed its files.
    """
    session, trial, attempt = leased.session, leased.trial, leased.attempt.number
    saved = checkpoints_of(session, trial.id)
    keep, position = leased.spec.checkpoints.keep, (attempt, sequence)
    if sum(_position(row) > position for row in saved) >= keep:
        return
    row = session.get(CheckpointRow, (trial.id, step))
    if row is not None and row.attempt == attempt and (row.uri == uri or row.sequence > sequence):
        return
    if row is None:
        row = CheckpointRow(trial_id=trial.id, step=step)
        session.add(row)
    elif row.attempt != attempt:
        # This attempt replaces what an earlier one saved at the step; its slot has removed all that came before that.
        _drop(leased, [one for one in saved if _position(one) < _position(row)])
    row.attempt, row.sequence, row.uri, row.at = attempt, sequence, uri, leased.now
    data = {"attempt": attempt, "step": step, "uri": uri}
    append_event(session, leased.experiment, "checkpoint", data, at=leased.now, trial_id=trial.id)
    _drop(leased, sorted({*saved, row}, key=_position)[:-keep])


def _position(row: CheckpointRow) -> tuple[int, int]:
    return row.attempt, row.sequence


def _drop(leased: LeasedAttempt, rows: Sequence[CheckpointRow]) -> None:
    for row in rows:
        leased.session.delete(row)
