"""What trials cost, as the API shows it."""

from collections.abc import Mapping
from typing import Any, Self

from service.api.views.rows import View
from service.domain.cost import Cost


class CostView(View):
    """Seconds by phase, and the seconds for which workers and GPUs were held.

    All phases except `waiting_seconds` add up to the time from the claim to the end. Those of the training function are
    means over the workers.
    """

    waiting_seconds: float | None
    """queued, until it was claimed; null for an attempt that an earlier version queued"""
    starting_seconds: float | None
    """from the claim to the first line of the training function: the slot, the worker group, the package, imports; null
    if the holder has not told, as for the following phases"""
    data_seconds: float | None
    """waiting for datasets of Ray Data and their batches; other data loaders are part of the training"""
    training_seconds: float | None
    """what else the training function did"""
    checkpointing_seconds: float | None
    """in reports that save a checkpoint, until it was saved"""
    reporting_seconds: float | None
    """in reports, waiting for the other workers and for the service's decision"""
    idle_seconds: float | None
    """after a worker's training function had ended, until the end of the attempt was stored"""
    unknown_seconds: float
    """of which the slot or caller that ran it sent no timings: since its last message, if it was lost or still runs"""
    worker_seconds: float
    """the time from the claim to the end, for each of the workers; 0 while they may wait for resources, and if they did
    not get them"""
    gpu_seconds: float
    """the same for each of their GPUs"""

    @classmethod
    def of(cls, cost: Cost) -> Self:
        shown = cost.to_json()
        return cls(**{name: shown.get(name) for name in cls.model_fields})

    @classmethod
    def of_sum(cls, stored: Mapping[str, Any] | None) -> Self | None:
        return None if stored is None else cls.of(Cost.from_json(stored))
