"""An experiment's objectives as the mirror needs them: whose value is the best so far."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from service.mirror import limits
from service.store.tables import ExperimentRow


class Best(NamedTuple):
    metric: str
    value: float
    trial_id: str


class Objective(NamedTuple):
    metric: str
    maximize: bool

    def better(self, best: Sequence[Best], trial_id: str, values: Mapping[str, Any]) -> Best | None:
        """The best of this objective after a trial has ended with `values`; a tie stays with the earlier trial."""
        held = next((one for one in best if one.metric == self.metric), None)
        value = limits.number(values.get(self.metric))
        if value is None or value != value:  # noqa: PLR0124 - NaN is no value
            return held
        improves = held is None or (value > held.value if self.maximize else value < held.value)
        return Best(self.metric, value, trial_id) if improves else held


def objectives_of(experiment: ExperimentRow) -> list[Objective]:
    return [
        Objective(one["metric"], one.get("direction") == "maximize") for one in experiment.spec.get("objectives", [])
    ]
