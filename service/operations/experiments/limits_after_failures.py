"""Which limits let an experiment continue that has ended because of its failures."""

from collections.abc import Iterator
from typing import Any

from service.domain.statuses import TrialStatus
from service.operations.experiments.end_check import find_end
from service.operations.locked_experiment import LockedExperiment
from service.specification.changeable_fields import changed_spec
from service.specification.models import ExperimentSpec
from service.store.trials.trials import counts_by_status

Patch = dict[str, dict[str, Any]]


def limits_after_failures(locked: LockedExperiment, spec: ExperimentSpec) -> str | None:
    """The least change of the spec with which the experiment would run on, in words; None if no limit helps."""
    for patch in _candidates(locked, spec):
        if find_end(locked, changed_spec(spec, patch)) is None:
            fields = [(f"{part}.{name}", value) for part, limits in patch.items() for name, value in limits.items()]
            return " and ".join(f"{field} to at least {value}" for field, value in fields)
    return None


def _candidates(locked: LockedExperiment, spec: ExperimentSpec) -> Iterator[Patch]:
    session, experiment = locked.session, locked.experiment
    failed = counts_by_status(session, experiment.id, (TrialStatus.FAILED,))[TrialStatus.FAILED]
    more_failures: Patch = {"failures": {"max_failed_trials": max(spec.failures.max_failed_trials or 0, failed)}}
    yield more_failures
    if spec.limits.max_trials is None:
        return
    kept = spec.kept_for_confirmations
    more_trials: Patch = {"limits": {"max_trials": max(spec.limits.max_trials, experiment.trial_count + kept + 1)}}
    yield more_trials
    yield more_trials | more_failures
