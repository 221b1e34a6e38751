"""The message that hands an attempt to its holder."""

from sqlalchemy.orm import Session

from service.operations.attempts.obsolete_checkpoints import earlier_files
from service.operations.checkpoints.folders import event_files_of, run_name
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.specification.models import SEED
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from trainer.wire import STOP_GRACE_SECONDS, Assignment, CheckpointRef, Lease


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
        run_name=run_name(experiment, trial, attempt.number),
        storage_path=context.settings.storage,
        event_files=event_files_of(experiment, trial, attempt.number, context.settings.storage),
        keep_checkpoints=spec.checkpoints.keep,
        earlier_checkpoints=earlier.checkpoints,
        earlier_runs=earlier.runs,
        max_seconds=spec.limits.max_trial_seconds,
        kill_after_seconds=spec.limits.kill_trial_after_seconds,
        stop_grace_seconds=spec.limits.stop_grace_seconds or STOP_GRACE_SECONDS,
        traceparent=attempt.traceparent,
        system_metrics_seconds=context.settings.system_metrics_seconds or None,
    )
