"""The attempts that an agent holds, and the end of those that it has lost."""

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy.exc import NoResultFound

from service.errors import NotFound
from service.operations.attempts.attempt_end import end_as_lost
from service.operations.attempts.leases import lock_attempt
from service.operations.checkpoints.checkpoint_deletions import deletions_of_agent
from service.operations.checkpoints.obsolete_checkpoints import obsolete_files
from service.operations.early_stopping.recorded_milestones import catching_up
from service.runtime.caches.experiment_caches import readable
from service.runtime.context import Context
from service.store.attempts import running_attempts
from service.store.experiments import experiments_with
from service.store.sql.database import database_now
from service.store.tables import AttemptRow
from trainer.wire import HeldAttempt, HeldAttempts, LostAttempt


def attempts_of_agent(context: Context, agent: str) -> HeldAttempts:
    """Return the running attempts that the agent holds, and the directories that it is to remove."""
    with context.database.read() as session:
        running = running_attempts(session, holder=agent)
        left = obsolete_files(session, context.settings.storage, database_now(session))
        return HeldAttempts(
            attempts=[HeldAttempt(trial=a.trial_id, attempt=a.number) for a in running],
            obsolete=left.directories,
            partly_needed=left.partly_needed,
            deletions=deletions_of_agent(session, agent),
            storage=context.settings.storage,
        )


def end_lost_attempts(context: Context, agent: str, lost: Sequence[LostAttempt]) -> None:
    """End attempts that the agent holds and reports as lost. Attempts that have ended already are left as they are.

    So are those of experiments that only a later version of the service can read: their leases expire.
    """
    wanted = {(one.trial, one.attempt): one for one in lost}
    with context.database.read() as session:
        held = [row for row in running_attempts(session, holder=agent) if (row.trial_id, row.number) in wanted]
        experiments = readable(experiments_with(session, [*{row.experiment_id for row in held}]))
        ids = {experiment.id for experiment in experiments}
        found = [(row.id, wanted[row.trial_id, row.number]) for row in held if row.experiment_id in ids]
    for attempt_id, one in found:
        # Its experiment may have been deleted since.
        with suppress(NotFound, NoResultFound):
            _end_lost_attempt(context, agent, attempt_id, began=one.began)
    if found:
        context.notify_all()


@catching_up
def _end_lost_attempt(context: Context, agent: str, attempt_id: int, *, began: bool) -> None:
    with context.database.write() as session:
        leased = lock_attempt(session, session.get_one(AttemptRow, attempt_id))
        if leased.attempt.ended_at is None:
            message = f"the slot of agent {agent!r} that ran it is gone: its process was killed, or Ray was restarted"
            end_as_lost(leased, message, context.settings.lease_seconds, began=began)
