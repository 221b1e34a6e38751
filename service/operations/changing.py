"""Changing the spec of a live experiment."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.domain.statuses import EndReason
from service.errors import NotFound
from service.operations.context import Context
from service.operations.ending import begin_end, check_open, settle_experiment
from service.operations.measuring import targets_reached
from service.operations.rejudging import relearn
from service.operations.specs import spec_of
from service.spec.changes import changed_spec, differences
from service.spec.models import ExperimentSpec
from service.store.database import database_now
from service.store.events import append_event
from service.store.experiments import lock_experiment
from service.store.tables import ExperimentRow
from service.store.trials import trials_with_values


def change(context: Context, name_or_id: str, patch: Any) -> ExperimentRow:
    """Merges the patch into the spec; each field that differs is an event. What it asks for is acted upon at once.

    Raises NotFound, Invalid with every mistake, and WrongState for an experiment that is over.
    """
    with context.database.write() as session:
        experiment = lock_experiment(session, name_or_id)
        if experiment is None:
            raise NotFound(f"there is no experiment {name_or_id!r}")
        check_open(experiment, "can be changed no more")
        before = spec_of(experiment)
        after = changed_spec(before, patch)
        if after != before:
            _store(session, experiment, before, after, database_now(session))
    context.ring_all()
    return experiment


def _store(
    session: Session, experiment: ExperimentRow, before: ExperimentSpec, after: ExperimentSpec, now: datetime
) -> None:
    experiment.spec = after.model_dump(mode="json")
    experiment.tags, experiment.priority = dict(after.tags), after.priority
    for one in differences(before, after):
        data = {"field": one.field, "before": one.before, "after": one.after}
        experiment.spec_changed_at_event = append_event(session, experiment, "experiment.changed", data, at=now)
    if after.early_stopping != before.early_stopping:
        relearn(session, experiment, after)
    if after.objectives != before.objectives:
        _look_for_targets(session, experiment, after, now)
    settle_experiment(session, experiment, after, now)


def _look_for_targets(session: Session, experiment: ExperimentRow, spec: ExperimentSpec, now: datetime) -> None:
    """A target that was moved may have been reached already."""
    for trial in trials_with_values(session, experiment.id):
        if (sentence := targets_reached(spec, trial)) is not None:
            begin_end(session, experiment, EndReason.TARGET_REACHED, now, f"trial {trial.number}: {sentence}")
            return
