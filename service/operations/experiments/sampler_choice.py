"""The sampler of an experiment that leaves it to the service, where another service announced another one.

The sampler is chosen from the spec and is not stored, so an experiment may have another one after an upgrade.
"""

from service.operations.early_stopping.rule_choice import announce
from service.operations.locked_experiment import LockedExperiment
from service.runtime.caches.experiment_caches import spec_of
from service.specification.models import AUTO
from service.store.events import newest_data


def announce_other_sampler(locked: LockedExperiment) -> None:
    """Append `experiment.search_chosen` if `auto` chooses another sampler than the newest such event says.

    Call it before a trial of the search is created.
    """
    experiment, spec = locked.experiment, spec_of(locked.experiment)
    if spec.search.sampler != AUTO:
        return
    if experiment.announced_sampler is None:  # it was created by an earlier version
        announced = newest_data(locked.session, experiment.id, "experiment.search_chosen")
        experiment.announced_sampler = None if announced is None else announced["sampler"]["name"]
    if experiment.announced_sampler != spec.chosen_sampler.name:
        announce(locked, spec)
