"""A user pauses, resumes, stops, cancels or deletes an experiment. Repeating a call is harmless."""

import shutil
from collections.abc import Callable
from functools import partial

from sqlalchemy import select

from service.domain.end_reasons import EndReason
from service.domain.statuses import LIVE_EXPERIMENT, ExperimentStatus, StopCause, TrialStatus
from service.errors import WrongState
from service.operations.checkpoints.checkpoint_deletions import schedule_deletion
from service.operations.experiments.experiment_end import (
    advance_experiment,
    begin_ending,
    can_be_undone,
    check_not_ended,
    how_to_continue,
    how_to_follow,
)
from service.operations.experiments.revival import take_back_stop
from service.operations.locked_experiment import LockedExperiment, lock_named
from service.operations.transitions import move_experiment, request_stop
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.experiments import may_run_trials
from service.store.sql.database import lift_statement_timeout
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.trials import trials_with


def pause(context: Context, name_or_id: str) -> ExperimentRow:
    """Starts no new trials; running ones finish.

    Raises NotFound, and WrongState for an experiment that has ended or is ending.
    """
    return _locked(context, name_or_id, partial(_move, to=ExperimentStatus.PAUSED))


def resume(context: Context, name_or_id: str) -> ExperimentRow:
    """Starts trials again after a pause, or after a user's stop, whose trials then go on.

    Raises NotFound, and WrongState for an experiment that is ending, has ended otherwise, or would end again.
    """
    return _locked(context, name_or_id, _resume)


def stop(context: Context, name_or_id: str) -> ExperimentRow:
    """Running trials may save a checkpoint and end as `stopped`. Raises NotFound."""
    return _locked(context, name_or_id, partial(_stop, detail="a user stopped it"))


def cancel(context: Context, name_or_id: str) -> ExperimentRow:
    """Stops without grace: workers are killed. Raises NotFound."""
    return _locked(context, name_or_id, _cancel)


def delete(context: Context, name_or_id: str, *, keep_checkpoints: bool = False) -> None:
    """Deletes an ended experiment. Raises NotFound, and WrongState for a live one.

    Its agents delete its checkpoints soon after, unless they are to be kept.
    """
    with context.database.write() as session:
        experiment = lock_named(session, name_or_id).experiment
        if experiment.status in LIVE_EXPERIMENT:
            raise _too_early_to_delete(experiment)
        if not keep_checkpoints:
            schedule_deletion(session, experiment, context.settings.storage)
        lift_statement_timeout(session.connection())
        trial_ids = session.scalars(select(TrialRow.id).where(TrialRow.experiment_id == experiment.id)).all()
        session.delete(experiment)
    for trial_id in trial_ids:
        shutil.rmtree(context.settings.logs_dir / trial_id, ignore_errors=True)


def _too_early_to_delete(experiment: ExperimentRow) -> WrongState:
    if may_run_trials(experiment):
        what = f"is {experiment.status}; cancel it first, then delete it"
        allowed = ["pause", "resume", "stop", "cancel"]
    else:
        what = f"is ending ({experiment.end_reason}); delete it when its last trials have ended, or cancel it first"
        allowed = ["stop", "cancel"]
    return WrongState(f"experiment {experiment.name} {what}", experiment_status=experiment.status, allowed=allowed)


def _locked(context: Context, name_or_id: str, change: Callable[[LockedExperiment], None]) -> ExperimentRow:
    """Runs `change` under the experiment's lock, in one transaction."""
    with context.database.write() as session:
        locked = lock_named(session, name_or_id)
        change(locked)
    context.notify_all()
    return locked.experiment


def _move(locked: LockedExperiment, *, to: ExperimentStatus) -> None:
    experiment = locked.experiment
    if experiment.status in LIVE_EXPERIMENT:
        check_not_ended(experiment, "starts no more trials")
    if experiment.status != to and not move_experiment(locked, to, reason=None):
        ended = f"experiment {experiment.name} is {experiment.status}"
        if can_be_undone(experiment):
            message = f"{ended} ({experiment.end_reason}); to continue it, {how_to_continue(experiment)}"
        else:
            message = f"{ended} ({experiment.end_reason}), which is final; {how_to_follow(experiment)}"
        raise WrongState(
            message,
            experiment_status=experiment.status,
            allowed=[],
        )


def _resume(locked: LockedExperiment) -> None:
    if locked.experiment.ended_at is not None and locked.experiment.end_reason == EndReason.USER:
        take_back_stop(locked)
    else:
        _move(locked, to=ExperimentStatus.RUNNING)


def _stop(locked: LockedExperiment, *, detail: str) -> None:
    if locked.experiment.status in LIVE_EXPERIMENT:
        begin_ending(locked, EndReason.USER, detail)
        advance_experiment(locked, spec_of(locked.experiment))


def _cancel(locked: LockedExperiment) -> None:
    if locked.experiment.status not in LIVE_EXPERIMENT:
        return
    for trial in trials_with(locked.session, locked.experiment.id, TrialStatus.RUNNING):
        request_stop(trial, StopCause.EXPERIMENT_ENDED, "the experiment ends: a user cancelled it")
        trial.killed = True
    _stop(locked, detail="a user cancelled it")
