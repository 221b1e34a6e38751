"""A user pauses, resumes, stops, cancels or deletes an experiment. Repeating a call is harmless."""

import shutil
from collections.abc import Callable
from datetime import datetime
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.end_reasons import EndReason
from service.domain.statuses import LIVE_EXPERIMENT, ExperimentStatus, StopCause, TrialStatus
from service.errors import WrongState
from service.operations.checkpoints.experiment_deletion import schedule_deletion
from service.operations.experiments.experiment_end import (
    advance_experiment,
    begin_ending,
    can_be_undone,
    check_not_ended,
    how_to_continue,
    how_to_follow,
)
from service.operations.experiments.revival import take_back_stop
from service.operations.transitions import move_experiment, request_stop
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.experiments import may_run_trials
from service.store.lookup import locked_experiment
from service.store.sql.database import database_now, lift_statement_timeout
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
        experiment = locked_experiment(session, name_or_id)
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


def _locked(
    context: Context, name_or_id: str, change: Callable[[Session, ExperimentRow, datetime], None]
) -> ExperimentRow:
    """Runs `change` under the experiment's lock, in one transaction."""
    with context.database.write() as session:
        experiment = locked_experiment(session, name_or_id)
        change(session, experiment, database_now(session))
    context.notify_all()
    return experiment


def _move(session: Session, experiment: ExperimentRow, now: datetime, *, to: ExperimentStatus) -> None:
    if experiment.status in LIVE_EXPERIMENT:
        check_not_ended(experiment, "starts no more trials")
    if experiment.status != to and not move_experiment(session, experiment, to, reason=None, at=now):
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


def _resume(session: Session, experiment: ExperimentRow, now: datetime) -> None:
    if experiment.ended_at is not None and experiment.end_reason == EndReason.USER:
        take_back_stop(session, experiment, now)
    else:
        _move(session, experiment, now, to=ExperimentStatus.RUNNING)


def _stop(session: Session, experiment: ExperimentRow, now: datetime, *, detail: str) -> None:
    if experiment.status in LIVE_EXPERIMENT:
        begin_ending(session, experiment, EndReason.USER, now, detail)
        advance_experiment(session, experiment, spec_of(experiment), now)


def _cancel(session: Session, experiment: ExperimentRow, now: datetime) -> None:
    if experiment.status not in LIVE_EXPERIMENT:
        return
    for trial in trials_with(session, experiment.id, TrialStatus.RUNNING):
        request_stop(trial, StopCause.EXPERIMENT_ENDED, "the experiment ends: a user cancelled it")
        trial.killed = True
    _stop(session, experiment, now, detail="a user cancelled it")
