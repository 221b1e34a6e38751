"""Giving a trial to whoever asks for one: a queued one, or a new one that the search proposes.

The proposal is computed between two short transactions; the second looks again at everything that may have changed.
"""

import secrets
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from search.problem import SpaceExhausted
from search.space import Params
from service.domain.limits import has_room
from service.domain.statuses import EndReason, ExperimentStatus, TrialStatus
from service.operations.context import Context
from service.operations.ending import begin_end, limits_of, progress_of, settle_experiment
from service.operations.moving import move_trial
from service.spec.models import ExperimentSpec
from service.store.attempts import attempt_by_request
from service.store.database import database_now
from service.store.events import append_event
from service.store.experiments import lock_experiment, running_experiments
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials import newest_checkpoint, next_queued
from trainer.wire import Assignment, CheckpointRef, Lease

MAX_PROPOSALS = 5
"""Proposals computed for one ask, should others take the trial's number again and again meanwhile."""


def assign(context: Context, experiment_id: str, holder: str, request_id: str) -> Assignment | None:
    """None when the experiment has nothing to run now."""
    params = None
    number = -1
    for _ in range(MAX_PROPOSALS):
        with context.database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment is None or not _has_room(session, experiment):
                return None
            trial = next_queued(session, experiment.id)
            if trial is None and experiment.trial_count == number and params is not None:
                trial = create_trial(session, experiment, params, "search", database_now(session))
            if trial is not None:
                attempt = _start_attempt(context, session, experiment, trial, holder, request_id)
                return _assignment(context, session, experiment, trial, attempt)
            number = experiment.trial_count
        try:
            params = context.proposals.propose(context.database, experiment_id, number)
        except SpaceExhausted:
            _end_of_space(context, experiment_id, number)
            return None
    return None


def assignment_of(context: Context, holder: str, request_id: str) -> Assignment | None:
    """What the same request was answered before, while that attempt lives."""
    with context.database.read() as session:
        attempt = attempt_by_request(session, holder, request_id)
        if attempt is None or attempt.ended_at is not None:
            return None
        trial = session.get_one(TrialRow, attempt.trial_id)
        experiment = session.get_one(ExperimentRow, attempt.experiment_id)
        return _assignment(context, session, experiment, trial, attempt)


def may_go_on(context: Context, experiment_id: str) -> bool:
    """Whether the experiment is the first in line for what its trial has just freed."""
    with context.database.read() as session:
        in_line = (row.id for row in running_experiments(session) if _has_room(session, row))
        return next(in_line, None) == experiment_id


def create_trial(session: Session, experiment: ExperimentRow, params: Params, origin: str, now: datetime) -> TrialRow:
    """The caller holds the experiment's lock. `origin` is `search`, or `enqueue` for a given configuration."""
    trial = TrialRow(
        id=f"t-{secrets.token_hex(6)}",
        experiment_id=experiment.id,
        number=experiment.trial_count,
        params=params,
        origin=origin,
        status=TrialStatus.QUEUED,
        killed=False,
        attempt_count=0,
        created_at=now,
    )
    experiment.trial_count += 1
    session.add(trial)
    session.flush()
    data = {"number": trial.number, "params": params, "origin": origin}
    trial.changed_at_event = append_event(session, experiment, "trial.created", data, at=now, trial_id=trial.id)
    return trial


def _has_room(session: Session, experiment: ExperimentRow) -> bool:
    if experiment.status != ExperimentStatus.RUNNING or experiment.end_reason is not None:
        return False
    spec = ExperimentSpec.model_validate(experiment.spec)
    return has_room(limits_of(spec), progress_of(session, experiment, database_now(session)))


def _start_attempt(
    context: Context, session: Session, experiment: ExperimentRow, trial: TrialRow, holder: str, request_id: str
) -> AttemptRow:
    now = database_now(session)
    checkpoint = newest_checkpoint(session, trial.id)
    trial.attempt_count += 1
    attempt = AttemptRow(
        trial_id=trial.id,
        experiment_id=experiment.id,
        number=trial.attempt_count,
        holder=holder,
        request_id=request_id,
        lease_token=secrets.token_urlsafe(24),
        lease_expires_at=now + timedelta(seconds=context.settings.lease_seconds),
        resume_uri=checkpoint.uri if checkpoint else None,
        resume_step=checkpoint.step if checkpoint else None,
        first_step=checkpoint.step + 1 if checkpoint else 1,
        next_sequence=0,
        started_at=now,
    )
    session.add(attempt)
    session.flush()
    facts = {"attempt": attempt.number, "agent": holder}
    move_trial(session, experiment, trial, TrialStatus.RUNNING, reason=None, at=now, **facts)
    return attempt


def _assignment(
    context: Context, session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow
) -> Assignment:
    spec = ExperimentSpec.model_validate(experiment.spec)
    resume = None
    if attempt.resume_uri is not None and attempt.resume_step is not None:
        resume = CheckpointRef(uri=attempt.resume_uri, step=attempt.resume_step)
    expires_at = attempt.lease_expires_at or database_now(session)
    return Assignment(
        trial=trial.id,
        experiment=experiment.name,
        experiment_id=experiment.id,
        number=trial.number,
        attempt=attempt.number,
        params=trial.params,
        config={**spec.config, **trial.params},
        lease=Lease(token=attempt.lease_token, expires_at=expires_at, seconds=context.settings.lease_seconds),
        trainer=spec.trainer,
        resume=resume,
        run_name=f"{experiment.name}-{experiment.id}/trial-{trial.number}-attempt-{attempt.number}",
        storage_path=context.settings.storage,
        keep_checkpoints=spec.checkpoints.keep,
        max_seconds=spec.limits.max_trial_seconds,
    )


def _end_of_space(context: Context, experiment_id: str, number: int) -> None:
    """Unless trials were added meanwhile, the experiment ends when those that run have ended."""
    with context.database.write() as session:
        experiment = lock_experiment(session, experiment_id)
        if experiment is None or experiment.trial_count != number or experiment.end_reason is not None:
            return
        now = database_now(session)
        begin_end(session, experiment, EndReason.SPACE_EXHAUSTED, now)
        settle_experiment(session, experiment, ExperimentSpec.model_validate(experiment.spec), now)
    context.ring()
