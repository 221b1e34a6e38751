"""Stores a changed specification, with an event for each field that differs."""

from datetime import datetime

from sqlalchemy.orm import Session

from service.runtime.caches.experiment_caches import cache_spec
from service.specification.merge_patch import Difference, differences
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.tables import ExperimentRow


def store_spec(
    session: Session, experiment: ExperimentRow, before: ExperimentSpec, after: ExperimentSpec, now: datetime
) -> list[Difference]:
    """Return the differences. The caller holds the experiment's lock."""
    changes = differences(before, after)
    experiment.spec = after.model_dump(mode="json")
    for one in changes:
        data = {"field": one.field, "before": one.before, "after": one.after}
        experiment.spec_changed_at_event = append_event(session, experiment, "experiment.changed", data, at=now)
    cache_spec(experiment, after)
    return changes
