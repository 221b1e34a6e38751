"""Finds what a caller names: an experiment by name or id, a trial by id. All functions raise NotFound.

What is found is bound to the lines of the log.
"""

from sqlalchemy.orm import Session

from service.errors import no_such_experiment, no_such_trial
from service.store.experiments import find_experiment
from service.store.tables import ExperimentRow, TrialRow
from trainer.process_log.context import log_context


def experiment_named(session: Session, name_or_id: str) -> ExperimentRow:
    experiment = find_experiment(session, name_or_id)
    if experiment is None:
        raise no_such_experiment(name_or_id)
    log_context.add(experiment=experiment.id)
    return experiment


def trial_named(session: Session, trial_id: str) -> TrialRow:
    trial = session.get(TrialRow, trial_id)
    if trial is None:
        raise no_such_trial(trial_id)
    log_context.add(experiment=trial.experiment_id)
    return trial
