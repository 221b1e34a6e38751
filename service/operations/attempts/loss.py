"""Attempts that end because nobody has them any more."""

from datetime import timedelta

from service.operations.attempts.finish import take_away
from service.operations.attempts.leases import Held
from trainer.wire import Failure, FailureKind

BY_ASK = "ask "
"""So begin the names of holders who run a trial themselves, without an agent."""


def lose(held: Held, message: str, lease_seconds: float, *, began: bool = True) -> None:
    """`began`: whether any of its workers may have run, as far as the caller knows."""
    began = began and _was_taken_up(held, lease_seconds)
    take_away(held, Failure(kind=FailureKind.LOST, message=message, began=began))


def _was_taken_up(held: Held, lease_seconds: float) -> bool:
    """Whether anybody may have worked on it. A slot extends the lease before it starts any worker."""
    attempt = held.attempt
    first_lease = attempt.started_at + timedelta(seconds=lease_seconds)
    is_extended = attempt.lease_expires_at is None or attempt.lease_expires_at > first_lease
    return is_extended or attempt.last_report_at is not None or attempt.holder.startswith(BY_ASK)
