"""An experiment's objectives as the mirror needs them: the best value so far of each."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from service.mirror import mlflow_limits
from service.store.tables import EventRow, ExperimentRow
from service.store.trials.trial_values import takes_best


class BestValue(NamedTuple):
    """The best value of one objective, with the trial that reached it."""

    metric: str
    value: float
    trial_id: str
    number: int


class MirroredObjective(NamedTuple):
    """`position` is the objective's index in a trial's values."""

    position: int
    metric: str
    maximize: bool

    def best_after(self, best: Sequence[BestValue], end: EventRow) -> BestValue | None:
        """Return the best value of this objective after a trial ended; of equal values that of the lowest number."""
        held = next((one for one in best if one.metric == self.metric), None)
        value = self.value_in(end)
        if value is None or end.trial_id is None:
            return held
        candidate = BestValue(self.metric, value, end.trial_id, int(end.data.get("number", 0)))
        return candidate if held is None or self._rank(candidate) < self._rank(held) else held

    def _rank(self, best: BestValue) -> tuple[float, int]:
        return (-best.value if self.maximize else best.value, best.number)

    def value_in(self, end: EventRow) -> float | None:
        values = end.data.get("values") or []
        value = mlflow_limits.number(values[self.position]) if self.position < len(values) else None
        return None if value is None or math.isnan(value) else value


def best_report_metric(experiment: ExperimentRow) -> str | None:
    """The metric of a run that has the trial's best value so far; None unless the objective has `report: best`.

    MLflow shows a metric by its newest point.
    """
    return f"paceline/best_{experiment.spec['objectives'][0]['metric']}" if takes_best(experiment) else None


def objectives_of(experiment: ExperimentRow) -> list[MirroredObjective]:
    return [
        MirroredObjective(position, one["metric"], one.get("direction") == "maximize")
        for position, one in enumerate(experiment.spec.get("objectives", []))
    ]
