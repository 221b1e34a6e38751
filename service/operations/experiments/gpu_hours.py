"""For how long the trials of an experiment have held GPUs: what `limits.max_gpu_hours` limits."""

from collections.abc import Iterable

from service.domain.cost import Cost
from service.domain.cost_summary import SECONDS_PER_HOUR
from service.specification.models import ExperimentSpec
from service.store.attempt_times import holding_seconds
from service.store.attempts import worker_count
from service.store.sql.clock_jumps import SecondsSince
from service.store.tables import AttemptRow, ExperimentRow


def gpu_hours(
    experiment: ExperimentRow, spec: ExperimentSpec, running: Iterable[AttemptRow], seconds_since: SecondsSince
) -> float:
    """The GPU hours of the attempts that have ended, and of the `running` ones until now."""
    scaling = spec.trainer.scaling
    running_seconds = sum(
        holding_seconds(one, seconds_since(one.started_at)) * worker_count(one, scaling) for one in running
    )
    seconds = Cost.from_json(experiment.cost).gpu_seconds + running_seconds * scaling.group.worker.get("GPU", 0.0)
    return seconds / SECONDS_PER_HOUR
