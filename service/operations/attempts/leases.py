"""Checks leases: only the holder of an attempt's lease token may report for it, and only until the attempt ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from service.domain.token_digest import token_digest
from service.errors import LeaseLost, ServiceError, Unauthorized, no_such_trial
from service.operations.locked_experiment import LockedExperiment
from service.runtime.caches.experiment_caches import spec_of
from service.specification.models import ExperimentSpec
from service.store.attempts import attempt_by_revoked_token, attempt_by_token, lock_by_digests
from service.store.events import append_event
from service.store.experiments import lock_experiment
from service.store.sql.bulk_writes import change_later
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, TrialRow
from trainer.process_log.context import log_context

LEASE_SLACK = 0.025
"""A lease may last longer than promised by this fraction, so that most reports need not change its expiry."""


@dataclass(frozen=True)
class LeasedAttempt(LockedExperiment):
    """An attempt with the rows that it belongs to.

    `spec` is the one under which its reports and its end are judged. Both may change the experiment's spec afterwards.
    """

    spec: ExperimentSpec
    trial: TrialRow
    attempt: AttemptRow

    def bind_to_log(self) -> None:
        """Show what the present call is about on the lines of its log."""
        log_context.add(experiment=self.experiment.id, trial=self.trial.id, attempt=self.attempt.number)

    def extend_lease(self, seconds: float) -> None:
        """Set the expiry to at least `seconds` from now, and at most `LEASE_SLACK` later than that.

        The expiry is kept while it is in that range: it is indexed, and PostgreSQL adds an entry to every index of a
        row when one indexed column changes. The unchanged value is written all the same, so that all rows of a
        batch change in the same columns.
        """
        least, until = timedelta(seconds=seconds), self.attempt.lease_expires_at
        most = self.now + least * (1 + LEASE_SLACK)
        in_range = until is not None and self.now + least <= until <= most
        change_later(self.attempt, lease_expires_at=until if in_range else most)

    def note_world_size(self, world_size: int | None) -> None:
        """Keep how many workers an elastic group has, and say it in an event, with the step that it continues from.

        It is one number for each attempt, the first that the holder tells, since a group that is resized starts
        another attempt.
        """
        attempt = self.attempt
        if world_size is None or attempt.world_size is not None:
            return
        change_later(attempt, world_size=world_size)
        data = {"attempt": attempt.number, "world_size": world_size, "step": attempt.resume_step or 0}
        append_event(self.session, self.experiment, "attempt.world_size", data, at=self.now, trial_id=self.trial.id)


def lock_leased_attempts(
    session: Session, wanted: Sequence[tuple[str, str | None]]
) -> list[LeasedAttempt | ServiceError]:
    """Lock the experiments of several attempts, each given by trial id and lease token.

    In place of an attempt that has ended, or that the token does not belong to, is the error to answer.
    """
    by_token = {token: token_digest(token) for _, token in wanted if token is not None}
    locked, rows = lock_by_digests(session, by_token.values())
    experiments = {row.id: row for row in locked}
    specs = {id_: spec_of(row) for id_, row in experiments.items()}
    known = {row.attempt.lease_digest: row for row in rows}

    def leased(trial_id: str, token: str | None) -> LeasedAttempt | ServiceError:
        found = known.get(by_token[token]) if token is not None else None
        if found is None or found.trial.id != trial_id or found.trial.experiment_id not in experiments:
            return _refusal(session, trial_id, token)
        if found.attempt.ended_at is not None:
            return lease_lost(found.attempt)
        id_ = found.trial.experiment_id
        return LeasedAttempt(session, experiments[id_], found.now, specs[id_], found.trial, found.attempt)

    return [leased(trial_id, token) for trial_id, token in wanted]


def lock_leased_attempt(session: Session, trial_id: str, token: str | None) -> LeasedAttempt:
    """Raises Unauthorized, NotFound, and LeaseLost for an attempt that has ended, or whose lease is revoked."""
    [leased] = lock_leased_attempts(session, [(trial_id, token)])
    if isinstance(leased, ServiceError):
        raise leased
    leased.bind_to_log()
    return leased


def lock_attempt(session: Session, attempt: AttemptRow) -> LeasedAttempt:
    """Lock the attempt's experiment and read the attempt again. It may have ended. Raises NotFound."""
    experiment = lock_experiment(session, attempt.experiment_id)
    if experiment is None:
        raise no_such_trial(attempt.trial_id)
    session.refresh(attempt)
    trial = session.get_one(TrialRow, attempt.trial_id, populate_existing=True)
    leased = LeasedAttempt(session, experiment, database_now(session), spec_of(experiment), trial, attempt)
    leased.bind_to_log()
    return leased


def check_holder(session: Session, trial_id: str, token: str | None) -> AttemptRow:
    """Return the attempt without a lock. It may have ended.

    Raises Unauthorized, NotFound, and LeaseLost for a revoked lease.
    """
    attempt = attempt_by_token(session, token) if token is not None else None
    if attempt is None or attempt.trial_id != trial_id:
        raise _refusal(session, trial_id, token)
    return attempt


def check_lease(session: Session, trial_id: str, token: str | None) -> AttemptRow:
    """Return the running attempt without a lock, for callers that change no row.

    Raises as `lock_leased_attempt`.
    """
    attempt = check_holder(session, trial_id, token)
    if attempt.ended_at is not None:
        raise lease_lost(attempt)
    log_context.add(experiment=attempt.experiment_id, attempt=attempt.number)
    return attempt


def lease_lost(attempt: AttemptRow) -> LeaseLost:
    return LeaseLost(
        f"attempt {attempt.number} of trial {attempt.trial_id} has ended; stop its work, nothing more is accepted",
        trial=attempt.trial_id,
        attempt=attempt.number,
    )


def _lease_revoked(attempt: AttemptRow) -> LeaseLost:
    return LeaseLost(
        f"the lease of attempt {attempt.number} of trial {attempt.trial_id} was revoked when a backup was restored; "
        "stop its work, nothing more is accepted, and the trial is run again",
        trial=attempt.trial_id,
        attempt=attempt.number,
    )


def no_lease_token() -> Unauthorized:
    return Unauthorized("send the attempt's lease token: Authorization: Bearer <token>")


def _refusal(session: Session, trial_id: str, token: str | None) -> ServiceError:
    if token is None:
        return no_lease_token()
    if session.get(TrialRow, trial_id) is None:
        return no_such_trial(trial_id)
    revoked = attempt_by_revoked_token(session, token)
    if revoked is not None and revoked.trial_id == trial_id:
        return _lease_revoked(revoked)
    return Unauthorized(f"this is not the lease token of trial {trial_id}", trial=trial_id)
