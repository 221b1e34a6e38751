"""A user pins a checkpoint, so that nothing but the deletion of its experiment removes it."""

from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.event_kinds import EventKind
from service.errors import NotFound, WrongState
from service.operations.checkpoints.retention_removal import remove_unneeded
from service.operations.locked_experiment import lock_of_trial
from service.runtime.context import Context
from service.store.checkpoints.checkpoints import checkpoint_at
from service.store.events import append_event
from service.store.tables import CheckpointRow, TrialRow


def pin(context: Context, trial_id: str, step: int) -> CheckpointRow:
    """Raises NotFound, and WrongState for a checkpoint that retention has removed. A repeat is harmless."""
    return _set_pin(context, trial_id, step, is_pinned=True)[0]


def unpin(context: Context, trial_id: str, step: int) -> CheckpointRow:
    """Unpin a checkpoint; retention then treats it as any other of its trial. Raises as `pin`; a repeat is harmless.

    If its trial has ended and has newer ones, it is removed now, or when the trial has settled: no report follows that
    would replace it.
    """
    row, experiment_id = _set_pin(context, trial_id, step, is_pinned=False)
    remove_unneeded(context, experiment_id)
    with context.database.read() as session:
        return checkpoint_at(session, trial_id, step) or row


def _set_pin(context: Context, trial_id: str, step: int, *, is_pinned: bool) -> tuple[CheckpointRow, str]:
    """Returns the checkpoint, and its experiment's id."""
    with context.database.write() as session:
        locked, trial = lock_of_trial(session, trial_id)
        row = present_checkpoint(session, trial, step)
        if row.pinned is not is_pinned:
            row.pinned_at = locked.now if is_pinned else None
            kind: EventKind = "checkpoint.pinned" if is_pinned else "checkpoint.unpinned"
            locked.experiment.has_unpinned |= not is_pinned
            data = {"step": step, "uri": row.uri}
            append_event(session, locked.experiment, kind, data, at=locked.now, trial_id=trial.id)
    context.new_events.notify()
    return row, locked.experiment.id


def present_checkpoint(session: Session, trial: TrialRow, step: int) -> CheckpointRow:
    """Raises NotFound, and WrongState for a checkpoint that retention has removed."""
    row = checkpoint_at(session, trial.id, step)
    if row is None:
        raise NotFound(
            f"trial {trial.number} has no checkpoint at step {step}; GET /v1/trials/{trial.id}/checkpoints lists them"
        )
    if row.removed_at is not None:
        raise removed(row.removed_at, row.removed_why, step)
    return row


def removed(at: datetime, why: str | None, step: int) -> WrongState:
    return WrongState(f"the checkpoint of step {step} was removed at {at.isoformat(timespec='seconds')}: {why}")
