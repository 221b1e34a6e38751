"""Who asks for a trial, and what a repeated request was answered before."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.operations.attempts.assignment import build_assignment
from service.runtime.context import Context
from service.store.attempts import attempt_by_request
from service.store.tables import ExperimentRow, TrialRow
from trainer.wire import Assignment


@dataclass(frozen=True)
class Claimant:
    """Who asks for a trial. A `request_id` is answered once: repeated, it gets the same attempt.

    `yields_to_slots`: leave a trial to the warm slot that is about to ask for it.
    """

    holder: str
    request_id: str
    yields_to_slots: bool = False


@dataclass(frozen=True)
class Assigned:
    """The claimant has an attempt."""

    assignment: Assignment


@dataclass(frozen=True)
class AttemptEnded:
    """The request had an attempt, which has ended since, or whose lease token is not known any more."""


def earlier_answer(context: Context, session: Session, claimant: Claimant) -> Assigned | AttemptEnded | None:
    """Return what the same request was answered before; None for a new request."""
    attempt = attempt_by_request(session, claimant.holder, claimant.request_id)
    if attempt is None:
        return None
    token = context.lease_tokens.of(attempt.lease_salt, attempt.lease_digest)
    if attempt.ended_at is not None or token is None:
        return AttemptEnded()
    trial = session.get_one(TrialRow, attempt.trial_id)
    experiment = session.get_one(ExperimentRow, attempt.experiment_id)
    return Assigned(build_assignment(context, session, experiment, trial, attempt, token))
