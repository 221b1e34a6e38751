"""Who asks for a trial, and the message that hands an attempt to its holder; the same one for a repeated request."""

import hashlib
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.operations.checkpoints.folders import event_files_of, run_of
from service.operations.checkpoints.obsolete_checkpoints import earlier_files
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.specification.spec_sections import SEED
from service.store.attempts import attempt_by_request
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from trainer.wire import STOP_GRACE_SECONDS, Assignment, CheckpointRef, Lease


@dataclass(frozen=True)
class Claimant:
    """Who asks for a trial. A `request_id` is answered once: repeated, it gets the same attempt.

    `serves_all`: it takes trials of all experiments. So it leaves a trial to the warm slot that is about to ask for it,
    and waits little for the lock of an experiment.
    """

    holder: str
    request_id: str
    serves_all: bool = False


_AFTER = "after-"


def id_after(attempt_id: int) -> str:
    """The request id of a holder that ends this attempt and asks for the next trial. No caller can give it."""
    return f"{_AFTER}{attempt_id}"


def id_from_caller(given: str) -> str:
    """The request id for what a caller has given, who could otherwise guess `id_after` and get a slot's lease."""
    return hashlib.sha256(given.encode()).hexdigest() if given.startswith(_AFTER) else given


@dataclass(frozen=True)
class AttemptEnded:
    """The request had an attempt, which has ended since, or whose lease token is not known any more."""


def earlier_answer(context: Context, session: Session, claimant: Claimant) -> Assignment | AttemptEnded | None:
    """Return what the same request was answered before; None for a new request."""
    attempt = attempt_by_request(session, claimant.holder, claimant.request_id)
    if attempt is None:
        return None
    token = context.lease_tokens.of(attempt.lease_salt, attempt.lease_digest)
    if attempt.ended_at is not None or token is None:
        return AttemptEnded()
    trial = session.get_one(TrialRow, attempt.trial_id)
    experiment = session.get_one(ExperimentRow, attempt.experiment_id)
    return build_assignment(context, session, experiment, trial, attempt, token)


def build_assignment(
    context: Context, session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow, token: str
) -> Assignment:
    spec = spec_of(experiment)
    resume = None
    if attempt.resume_uri is not None and attempt.resume_step is not None:
        resume = CheckpointRef(uri=attempt.resume_uri, step=attempt.resume_step)
    expires_at = attempt.lease_expires_at or database_now(session)
    earlier = earlier_files(session, experiment, trial, attempt)
    return Assignment(
        trial=trial.id,
        experiment=experiment.name,
        experiment_id=experiment.id,
        number=trial.number,
        attempt=attempt.number,
        params=trial.params,
        config={**spec.config, **({} if trial.seed is None else {SEED: trial.seed}), **trial.params},
        lease=Lease(token=token, expires_at=expires_at, seconds=context.settings.lease_seconds),
        trainer=spec.trainer,
        resume=resume,
        run_name=run_of(experiment, trial.number, attempt.number),
        storage_path=context.settings.storage,
        event_files=event_files_of(experiment, trial, attempt.number, context.settings.storage),
        keep_checkpoints=spec.checkpoints.keep,
        earlier_checkpoints=earlier.checkpoints,
        earlier_runs=earlier.runs,
        max_seconds=spec.limits.max_trial_seconds,
        kill_after_seconds=spec.limits.kill_trial_after_seconds,
        stop_grace_seconds=spec.limits.stop_grace_seconds or STOP_GRACE_SECONDS,
        report_timeout_seconds=spec.failures.report_timeout_seconds,
        max_log_bytes=context.settings.max_log_bytes,
        traceparent=attempt.traceparent,
        system_metrics_seconds=context.settings.system_metrics_seconds or None,
    )
