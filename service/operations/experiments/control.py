"""What a user may do to a live experiment or trial. Repeating any of it is harmless."""

import shutil
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.statuses import LIVE_EXPERIMENT, EndReason, ExperimentStatus, StopCause, TrialStatus
from service.errors import WrongState
from service.operations.experiments.termination import advance_experiment, begin_ending
from service.operations.transitions import move_experiment, move_trial, request_stop
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.store.experiments import lock_experiment
from service.store.lookup import locked_experiment, locked_trial
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials import trials_with

Change = Callable[[Session, ExperimentRow, datetime], None]


def pause(context: Context, name_or_id: str) -> ExperimentRow:
    """No new trials; running ones finish. Raises NotFound, and WrongState for a finished experiment."""
    return _change(context, name_or_id, _move_to(ExperimentStatus.PAUSED))


def resume(context: Context, name_or_id: str) -> ExperimentRow:
    """Raises NotFound, and WrongState for a finished experiment."""
    return _change(context, name_or_id, _move_to(ExperimentStatus.RUNNING))


def stop(context: Context, name_or_id: str) -> ExperimentRow:
    """Running trials get to save a checkpoint and end as `stopped`. Raises NotFound."""
    return _change(context, name_or_id, _stop)


def cancel(context: Context, name_or_id: str) -> ExperimentRow:
    """Stop without grace: workers are ended now. Raises NotFound."""
    return _change(context, name_or_id, _cancel)


def delete(context: Context, name_or_id: str) -> None:
    """Forgets a finished experiment; one that is gone already stays so. Raises WrongState for a live one."""
    with context.database.write() as session:
        experiment = lock_experiment(session, name_or_id)
        if experiment is None:
            return
        if experiment.status in LIVE_EXPERIMENT:
            raise WrongState(
                f"experiment {experiment.name} is {experiment.status}; cancel it first, then delete it",
                experiment_status=experiment.status,
                allowed=["pause", "resume", "stop", "cancel"],
            )
        trial_ids = session.scalars(select(TrialRow.id).where(TrialRow.experiment_id == experiment.id)).all()
        session.delete(experiment)
    for trial_id in trial_ids:
        shutil.rmtree(context.settings.logs_dir / trial_id, ignore_errors=True)


def stop_trial(context: Context, trial_id: str) -> TrialRow:
    """One trial leaves at its next report; a queued or paused one ends now. Raises NotFound."""
    with context.database.write() as session:
        experiment, trial = locked_trial(session, trial_id)
        now = database_now(session)
        if trial.status in (TrialStatus.QUEUED, TrialStatus.PAUSED):
            move_trial(session, experiment, trial, TrialStatus.STOPPED, reason="a user stopped it", at=now)
            advance_experiment(session, experiment, spec_of(experiment), now)
        elif trial.status == TrialStatus.RUNNING:
            request_stop(trial, StopCause.USER, "a user stopped it")
    context.holder_news.notify([trial_id])
    context.notify_changed()
    return trial


def _change(context: Context, name_or_id: str, change: Change) -> ExperimentRow:
    with context.database.write() as session:
        experiment = locked_experiment(session, name_or_id)
        change(session, experiment, database_now(session))
    context.notify_all()
    return experiment


def _move_to(to: ExperimentStatus) -> Change:
    def change(session: Session, experiment: ExperimentRow, now: datetime) -> None:
        if experiment.status == to:
            return
        if not move_experiment(session, experiment, to, reason=None, at=now):
            raise WrongState(
                f"experiment {experiment.name} is {experiment.status}, which is for good; start a new one",
                experiment_status=experiment.status,
                allowed=[],
            )

    return change


def _stop(session: Session, experiment: ExperimentRow, now: datetime) -> None:
    if experiment.status in LIVE_EXPERIMENT:
        begin_ending(session, experiment, EndReason.USER, now)
        advance_experiment(session, experiment, spec_of(experiment), now)


def _cancel(session: Session, experiment: ExperimentRow, now: datetime) -> None:
    if experiment.status not in LIVE_EXPERIMENT:
        return
    for trial in trials_with(session, experiment.id, TrialStatus.RUNNING):
        request_stop(trial, StopCause.USER, "a user cancelled the experiment")
        trial.killed = True
    _stop(session, experiment, now)
