"""An experiment's objectives as the mirror needs them: whose value is the best so far."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from service.mirror import mlflow_limits
from service.store.tables import EventRow, ExperimentRow


class Best(NamedTuple):
    metric: str
    value: float
    trial_id: str
    number: int


class Objective(NamedTuple):
    """`place` is where it stands in a trial's values."""

    place: int
    metric: str
    maximize: bool

    def best_of(self, best: Sequence[Best], end: EventRow) -> Best | None:
        """The best of this objective after a trial has ended; of equals the one with the lowest number."""
        held = next((one for one in best if one.metric == self.metric), None)
        value = self.value_in(end)
        if value is None or end.trial_id is None:
            return held
        candidate = Best(self.metric, value, end.trial_id, int(end.data.get("number", 0)))
        return candidate if held is None or self._rank(candidate) < self._rank(held) else held

    def _rank(self, best: Best) -> tuple[float, int]:
        return (-best.value if self.maximize else best.value, best.number)

    def value_in(self, end: EventRow) -> float | None:
        values = end.data.get("values") or []
        value = mlflow_limits.number(values[self.place]) if self.place < len(values) else None
        return None if value is None or math.isnan(value) else value


def objectives_of(experiment: ExperimentRow) -> list[Objective]:
    return [
        Objective(place, one["metric"], one.get("direction") == "maximize")
        for place, one in enumerate(experiment.spec.get("objectives", []))
    ]
