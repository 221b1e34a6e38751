"""What one MLflow run gets from a batch of events: tags, metrics, parameters, status."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from service.mirror import mlflow_limits, mlflow_names

RunStatus = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]

DESCRIPTION = "mlflow.note.content"


class MetricPoint(NamedTuple):
    """One value of a metric. MLflow stores these four facts once, however often they are sent."""

    metric: str
    value: float
    at: datetime
    step: int


@dataclass
class RunUpdate:
    """The writes for one run. `started_at` and `params` are used only when the run is new to MLflow.

    `metric_names` are the names in MLflow of metrics that always have the same one.
    """

    started_at: datetime
    params: Mapping[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[MetricPoint] = field(default_factory=list)
    status: RunStatus | None = None
    ended_at: datetime | None = None
    metric_names: Mapping[str, str] = field(default_factory=dict)

    def set_tags(self, **values: Any) -> None:
        """Set tags below `paceline.`; None leaves a tag as it is."""
        self.tags |= mlflow_limits.texts({f"paceline.{key}": value for key, value in values.items()})

    def clear_tags(self, *names: str) -> None:
        """Make tags below `paceline.` empty. MLflow's batches cannot delete any."""
        self.tags |= {f"paceline.{name}": "" for name in names}

    def describe(self, text: str) -> None:
        self.tags[DESCRIPTION] = mlflow_limits.text(text)

    def add_metrics(self, values: Mapping[str, Any], at: datetime, step: int) -> None:
        """Add the numbers among `values`."""
        names = mlflow_names.names(values, self.metric_names)
        for metric, value in values.items():
            number = mlflow_limits.number(value)
            if number is not None:
                self.metrics.append(MetricPoint(names[metric], number, at, step))

    def set_status(self, status: RunStatus, ended_at: datetime | None = None) -> None:
        self.status, self.ended_at = status, ended_at

    def as_first(self, params: Mapping[str, str], tags: Mapping[str, str], *, is_new: bool) -> "RunUpdate":
        """Return the first update of a run, with its parameters. A run that was just created is RUNNING already."""
        is_redundant = is_new and self.status == "RUNNING"
        return replace(self, params=params, tags={**tags, **self.tags}, status=None if is_redundant else self.status)


def milliseconds(moment: datetime) -> int:
    """A time as MLflow stores it."""
    return round(moment.timestamp() * 1000)
