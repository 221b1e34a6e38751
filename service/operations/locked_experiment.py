"""An experiment under its lock. Most of what changes an experiment, its trials or its events takes one."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from service.errors import no_such_experiment, no_such_trial
from service.store.experiments import lock_experiment
from service.store.sql.clock_jumps import clock_jumps
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, TrialRow
from trainer.process_log.context import log_context


@dataclass(frozen=True)
class LockedExperiment:
    """An experiment that is locked until the transaction ends. It is made where the lock is taken.

    `now` is the database's time, read under the lock. The spec is none of it: it may change in the transaction.
    """

    session: Session
    experiment: ExperimentRow
    now: datetime

    def seconds_since(self, moment: datetime) -> float:
        """Return how long ago `moment` was, without jumps of the database's clock, as limits in time count it."""
        return clock_jumps(self.session).elapsed_seconds(moment, self.now)


def try_to_lock(session: Session, name_or_id: str) -> LockedExperiment | None:
    """None if there is no such experiment, or it has been deleted."""
    experiment = lock_experiment(session, name_or_id)
    return None if experiment is None else LockedExperiment(session, experiment, database_now(session))


def lock_named(session: Session, name_or_id: str) -> LockedExperiment:
    """Raises NotFound. What is locked is bound to the lines of the log."""
    locked = try_to_lock(session, name_or_id)
    if locked is None:
        raise no_such_experiment(name_or_id)
    log_context.add(experiment=locked.experiment.id)
    return locked


def lock_of_trial(session: Session, trial_id: str) -> tuple[LockedExperiment, TrialRow]:
    """As `lock_named`, of the trial's experiment. The trial is read again, under the lock."""
    trial = session.get(TrialRow, trial_id)
    locked = try_to_lock(session, trial.experiment_id) if trial else None
    if trial is None or locked is None:
        raise no_such_trial(trial_id)
    session.refresh(trial)
    log_context.add(experiment=locked.experiment.id)
    return locked, trial
