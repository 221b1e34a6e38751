"""An experiment under its lock. Most of what changes an experiment, its trials or its events takes one."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from service.store.experiments import lock_experiment
from service.store.lookup import locked_experiment, locked_trial
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, TrialRow


@dataclass(frozen=True)
class LockedExperiment:
    """An experiment that is locked until the transaction ends. It is made where the lock is taken.

    `now` is the database's time, read under the lock. The spec is none of it: it may change in the transaction.
    """

    session: Session
    experiment: ExperimentRow
    now: datetime


def try_to_lock(session: Session, experiment_id: str) -> LockedExperiment | None:
    """None if the experiment has been deleted."""
    experiment = lock_experiment(session, experiment_id)
    return None if experiment is None else LockedExperiment(session, experiment, database_now(session))


def lock_named(session: Session, name_or_id: str) -> LockedExperiment:
    """Raises NotFound."""
    experiment = locked_experiment(session, name_or_id)
    return LockedExperiment(session, experiment, database_now(session))


def lock_of_trial(session: Session, trial_id: str) -> tuple[LockedExperiment, TrialRow]:
    """The trial's experiment, and the trial as it is under the lock. Raises NotFound."""
    experiment, trial = locked_trial(session, trial_id)
    return LockedExperiment(session, experiment, database_now(session)), trial
