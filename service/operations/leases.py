"""Who may report for an attempt: the holder of its lease token, and nobody after the attempt has ended."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.errors import LeaseLost, NotFound, Unauthorized
from service.operations.specs import spec_of
from service.spec.models import ExperimentSpec
from service.store.attempts import attempt_by_token
from service.store.database import database_now
from service.store.experiments import lock_experiment
from service.store.tables import AttemptRow, ExperimentRow, TrialRow


@dataclass(frozen=True)
class Held:
    """An attempt with all that it belongs to, under the experiment's lock until the transaction ends."""

    session: Session
    experiment: ExperimentRow
    spec: ExperimentSpec
    trial: TrialRow
    attempt: AttemptRow
    now: datetime

    def extend(self, seconds: float) -> None:
        self.attempt.lease_expires_at = self.now + timedelta(seconds=seconds)


def find_held(session: Session, trial_id: str, token: str | None) -> Held:
    """Takes the lock. Raises Unauthorized or NotFound; the attempt may have ended."""
    if token is None:
        raise Unauthorized("send the attempt's lease token: Authorization: Bearer <token>")
    trial = session.get(TrialRow, trial_id)
    if trial is None:
        raise NotFound(f"there is no trial {trial_id!r}")
    attempt = attempt_by_token(session, token)
    if attempt is None or attempt.trial_id != trial_id:
        raise Unauthorized(f"the token is no lease of trial {trial_id}")
    return locked(session, attempt)


def locked(session: Session, attempt: AttemptRow) -> Held:
    """The attempt as it is once the lock is ours."""
    experiment = lock_experiment(session, attempt.experiment_id)
    if experiment is None:
        raise NotFound(f"there is no trial {attempt.trial_id!r}")
    session.refresh(attempt)
    trial = session.get_one(TrialRow, attempt.trial_id, populate_existing=True)
    return Held(session, experiment, spec_of(experiment), trial, attempt, database_now(session))


def check_lease(session: Session, trial_id: str, token: str | None) -> AttemptRow:
    """The living attempt, without the lock: for what changes no row. Raises LeaseLost, Unauthorized."""
    attempt = attempt_by_token(session, token) if token else None
    if attempt is None or attempt.trial_id != trial_id:
        raise Unauthorized(f"send a lease token of trial {trial_id}: Authorization: Bearer <token>")
    if attempt.ended_at is not None:
        raise lease_lost(attempt)
    return attempt


def hold(session: Session, trial_id: str, token: str | None) -> Held:
    """As find_held, and raises LeaseLost when the attempt has ended: a late holder is refused, never believed."""
    held = find_held(session, trial_id, token)
    if held.attempt.ended_at is not None:
        raise lease_lost(held.attempt)
    return held


def lease_lost(attempt: AttemptRow) -> LeaseLost:
    return LeaseLost(
        f"attempt {attempt.number} of trial {attempt.trial_id} has ended; stop its work, nothing more is accepted",
        trial=attempt.trial_id,
        attempt=attempt.number,
    )
