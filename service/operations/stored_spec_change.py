"""Stores a changed specification, with an event for each field that differs."""

from service.operations.locked_experiment import LockedExperiment
from service.runtime.caches.experiment_caches import cache_spec
from service.specification.changeable_fields import Difference, differences
from service.specification.models import ExperimentSpec
from service.store.events import append_event


def store_spec(locked: LockedExperiment, before: ExperimentSpec, after: ExperimentSpec) -> list[Difference]:
    """Return the differences."""
    experiment, changes = locked.experiment, differences(before, after)
    experiment.spec = after.model_dump(mode="json")
    for one in changes:
        data = {"field": one.field, "before": one.before, "after": one.after}
        seq = append_event(locked.session, experiment, "experiment.changed", data, at=locked.now)
        experiment.spec_changed_at_event = seq
    cache_spec(experiment, after)
    return changes
