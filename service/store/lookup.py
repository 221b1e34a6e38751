"""What a caller names: an experiment by its name or id, a trial by its id. All of it raises NotFound."""

from sqlalchemy.orm import Session

from service.errors import NotFound
from service.store.experiments import find_experiment, lock_experiment
from service.store.tables import ExperimentRow, TrialRow


def experiment_named(session: Session, name_or_id: str) -> ExperimentRow:
    experiment = find_experiment(session, name_or_id)
    if experiment is None:
        raise NotFound(f"there is no experiment {name_or_id!r}; GET /v1/experiments lists them")
    return experiment


def locked_experiment(session: Session, name_or_id: str) -> ExperimentRow:
    """With its lock, until the end of the transaction."""
    experiment = lock_experiment(session, name_or_id)
    if experiment is None:
        raise NotFound(f"there is no experiment {name_or_id!r}")
    return experiment


def trial_named(session: Session, trial_id: str) -> TrialRow:
    trial = session.get(TrialRow, trial_id)
    if trial is None:
        raise NotFound(f"there is no trial {trial_id!r}")
    return trial


def locked_trial(session: Session, trial_id: str) -> tuple[ExperimentRow, TrialRow]:
    """The trial as it is once its experiment's lock is ours."""
    trial = session.get(TrialRow, trial_id)
    experiment = lock_experiment(session, trial.experiment_id) if trial else None
    if trial is None or experiment is None:
        raise NotFound(f"there is no trial {trial_id!r}")
    session.refresh(trial)
    return experiment, trial
