"""When an attempt's function began, and for how long the attempt has held its resources, as far as that is known."""

from datetime import datetime

from service.domain.attempt_holders import is_caller
from service.store.json_of_other_versions import stored
from service.store.tables import AttemptRow
from trainer.wire import Failure, Outcome


def function_began_at(attempt: AttemptRow) -> datetime | None:
    """When the training function began; None as long as its holder has not told.

    For a caller that asked for the trial itself, it is the time of the answer, unless that caller tells another.
    """
    if attempt.began_at is not None:
        return attempt.began_at
    return attempt.started_at if is_caller(attempt.holder) else None


def holding_seconds(attempt: AttemptRow, elapsed: float) -> float:
    """For how long the attempt has held its resources, as far as it is known: from its claim on, `elapsed` seconds.

    A running one may still wait for them until its training function has begun or, of a holder that does not tell that,
    until its first report. One that has ended before any of its workers ran has held nothing.
    """
    has_begun = function_began_at(attempt) is not None or attempt.last_report_at is not None
    return elapsed if has_begun or (attempt.ended_at is not None and _may_have_begun(attempt)) else 0.0


def _may_have_begun(ended: AttemptRow) -> bool:
    """Whether the function may have begun in an attempt whose holder has not told so."""
    failure = None if ended.failure is None else stored(Failure, ended.failure)
    return ended.outcome != Outcome.STOPPED if failure is None else failure.began
