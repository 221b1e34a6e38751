"""Decides whether an experiment may start another trial now."""

from collections.abc import Mapping
from typing import Literal

from service.domain.statuses import ExperimentStatus, TrialStatus
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.experiments import may_run_trials
from service.store.tables import ExperimentRow

Startable = Literal["any", "queued"]

COUNTED = TrialStatus.QUEUED, TrialStatus.RUNNING
"""The statuses whose counts decide whether a trial may start."""


def startable_trials(experiment: ExperimentRow, counts: Mapping[str, int]) -> Startable | None:
    """Which trials may start: any, only queued ones, or none. `counts` has the experiment's trials in `COUNTED`."""
    if experiment.status != ExperimentStatus.RUNNING or not may_run_trials(experiment):
        return None
    spec, queued = spec_of(experiment), counts[TrialStatus.QUEUED]
    is_any_left = queued > 0 or spec.has_room(experiment.trial_count)
    if counts[TrialStatus.RUNNING] >= spec.limits.parallelism or not is_any_left:
        return None
    if experiment.end_reason is None:
        return "any"
    return "queued" if queued else None


def is_left_to_slots(context: Context, experiment: ExperimentRow, counts: Mapping[str, int]) -> bool:
    """Whether slots that wait for their next trial will use all the capacity that there is."""
    waiting = context.slot_handover.waiting_count(experiment.id)
    free = spec_of(experiment).limits.parallelism - counts[TrialStatus.RUNNING]
    return waiting > 0 and free <= waiting
