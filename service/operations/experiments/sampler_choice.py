"""The sampler of an experiment that leaves it to the service, where another service announced another one.

The sampler is chosen from the spec and is not stored, so an experiment may have another one after an upgrade.
"""

from typing import Any

from service.operations.early_stopping.rule_choice import announce
from service.operations.locked_experiment import LockedExperiment
from service.runtime.caches.experiment_caches import RowCache, spec_of
from service.specification.models import AUTO
from service.store.events import newest_data

_announced = RowCache[dict[str, Any], str]()
"""The names of samplers that events have announced for the experiments' specs."""


def announce_other_sampler(locked: LockedExperiment) -> None:
    """Append `experiment.search_chosen` if `auto` chooses another sampler than the newest such event says.

    Call it before a trial of the search is created.
    """
    experiment, spec = locked.experiment, spec_of(locked.experiment)
    if spec.search.sampler != AUTO:
        return
    name = spec.chosen_sampler.name
    if _announced.get(experiment.id, experiment.spec) == name:
        return
    announced = newest_data(locked.session, experiment.id, "experiment.search_chosen")
    if announced is not None and announced["sampler"]["name"] == name:
        _announced.put(experiment.id, experiment.spec, name)
    else:  # the next trial finds it, because this transaction may fail
        announce(locked, spec)
