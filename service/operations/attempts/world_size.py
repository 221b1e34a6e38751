"""How many workers an elastic group has: one number for each attempt, since a group that is resized starts another."""

from service.operations.attempts.leases import LeasedAttempt
from service.store.events import append_event
from service.store.sql.write_session import change_later


def note_world_size(leased: LeasedAttempt, world_size: int | None) -> None:
    """Keep what the holder tells first, and say it in an event, with the step that the attempt continues from."""
    attempt = leased.attempt
    if world_size is None or attempt.world_size is not None:
        return
    change_later(attempt, world_size=world_size)
    data = {"attempt": attempt.number, "world_size": world_size, "step": attempt.resume_step or 0}
    append_event(leased.session, leased.experiment, "attempt.world_size", data, at=leased.now, trial_id=leased.trial.id)
