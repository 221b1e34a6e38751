"""Who may report for an attempt: the holder of its lease token, and nobody after the attempt has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.errors import LeaseLost, NotFound, ServiceError, Unauthorized
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec
from service.store.attempts import attempt_by_token, attempts_by_tokens, lock_experiments_of
from service.store.experiments import lock_experiment
from service.store.sql.database import database_now
from service.store.sql.write_session import change_later
from service.store.tables import AttemptRow, ExperimentRow, TrialRow

LEASE_SLACK = 0.025
"""The part of a lease that it may last longer than promised, so that it need not be written with every report."""


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
        """Until at least so long from now, and at most by `LEASE_SLACK` longer.

        Seldom anew: an index has it, and PostgreSQL makes a new entry in every index of a row that changes in one. What
        stays is written all the same, which costs no entry, so that all who report change in the same columns.
        """
        least, until = timedelta(seconds=seconds), self.attempt.lease_expires_at
        most = self.now + least * (1 + LEASE_SLACK)
        is_well = until is not None and self.now + least <= until <= most
        change_later(self.attempt, lease_expires_at=until if is_well else most)


def find_held(session: Session, trial_id: str, token: str | None) -> Held:
    """Takes the lock. Raises Unauthorized or NotFound; the attempt may have ended."""
    attempt = attempt_by_token(session, token) if token is not None else None
    if attempt is None or attempt.trial_id != trial_id:
        raise _not_held(session, trial_id, token)
    return locked(session, attempt)


def hold_all(session: Session, wanted: Sequence[tuple[str, str | None]]) -> list[Held | ServiceError]:
    """As `hold` for many, each by its trial's id and its token, with a few queries for all of them."""
    tokens = {token for _, token in wanted if token is not None}
    experiments = {row.id: row for row in lock_experiments_of(session, tokens)}
    specs = {id_: spec_of(row) for id_, row in experiments.items()}
    known = {attempt.lease_token: (attempt, trial, now) for attempt, trial, now in attempts_by_tokens(session, tokens)}

    def one(trial_id: str, token: str | None) -> Held | ServiceError:
        found = known.get(token or "")
        if found is None or found[1].id != trial_id or found[1].experiment_id not in experiments:
            return _not_held(session, trial_id, token)
        attempt, trial, now = found
        if attempt.ended_at is not None:
            return lease_lost(attempt)
        id_ = trial.experiment_id
        return Held(session, experiments[id_], specs[id_], trial, attempt, now)

    return [one(trial_id, token) for trial_id, token in wanted]


def _not_held(session: Session, trial_id: str, token: str | None) -> ServiceError:
    if token is None:
        return Unauthorized("send the attempt's lease token: Authorization: Bearer <token>")
    if session.get(TrialRow, trial_id) is None:
        return NotFound(f"there is no trial {trial_id!r}")
    return Unauthorized(f"the token is no lease of trial {trial_id}")


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
