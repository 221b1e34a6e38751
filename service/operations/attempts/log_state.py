"""Which attempt's log a call reads, and whether that log may still grow."""

from dataclasses import dataclass

from service.domain.statuses import LIVE_TRIAL
from service.errors import NotFound
from service.operations.age_retention import removal_note
from service.operations.attempts.rank_logs import missing_end
from service.runtime.context import Context
from service.store.attempts import attempts_of
from service.store.lookup import trial_named
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow

NO_ATTEMPT = 0
"""In place of the number of the newest attempt."""


@dataclass(frozen=True)
class LogState:
    """The attempt whose log is read, whether it may write more, and a note for the end of its log.

    `number` is `NO_ATTEMPT` for a trial without an attempt, which is live while it may get one.
    """

    number: int
    is_live: bool
    note: str


def log_state(context: Context, trial: str, attempt: int | None) -> LogState:
    """`attempt`: its number; None for the newest, and `NO_ATTEMPT` for the first if there is one by now."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has no attempt {attempt}; attempts so far: {row.attempt_count}")
        number = row.attempt_count if attempt is None else attempt or min(1, row.attempt_count)
        found = next((one for one in attempts_of(session, row.id) if one.number == number), None)
        has_ended = number < row.attempt_count or (found is not None and found.ended_at is not None)
        is_live = row.status in LIVE_TRIAL and not has_ended
        note = missing_end(found) if found is not None else ""
        experiment = session.get_one(ExperimentRow, row.experiment_id)
        return LogState(number, is_live, removal_note(context, experiment, row.id, database_now(session)) or note)
