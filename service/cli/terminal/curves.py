"""The curves of an experiment's trials, computed from its events, and as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from search.reported_numbers import number_in
from service.domain.statuses import TrialStatus

BARS = "▁▂▃▄▅▆▇█"
OUTLIERS = 0.05
"""This share of the values, at each end, is drawn as the end of the scale: a first loss of 1e6 hides all others."""

STATUS_EVENTS = {f"trial.{status}": status.value for status in TrialStatus}
"""The statuses of trials by the kinds of their events. A later version's service may send other kinds."""

Json = dict[str, Any]


@dataclass
class Curve:
    """A trial and its values of one metric, by step.

    `ended_seconds` are those of its ended attempts, `running_since` is the start of the present one.
    """

    number: int
    params: Json
    status: str = "queued"
    ended_seconds: float | None = None
    running_since: datetime | None = None
    points: dict[int, float] = field(default_factory=dict)

    @property
    def newest(self) -> tuple[int, float] | None:
        step = max(self.points, default=None)
        return None if step is None else (step, self.points[step])

    def seconds(self, now: datetime) -> float | None:
        """How long its attempts have taken so far; None before the first one."""
        if self.running_since is None:
            return self.ended_seconds
        return (self.ended_seconds or 0.0) + max(0.0, (now - self.running_since).total_seconds())

    def set_status(self, status: str, at: datetime) -> None:
        self.status, self.ended_seconds = status, self.seconds(at)
        self.running_since = at if status == "running" else None


class Curves:
    """The curves of trials, by id. `add` takes events in their order."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.by_trial: dict[str, Curve] = {}

    def add(self, event: Json) -> None:
        kind, data = event["kind"], event["data"]
        if kind == "trial.created":
            self.by_trial[event["trial"]] = Curve(data["number"], data["params"])
        elif (curve := self.by_trial.get(event["trial"])) is None:
            return
        elif kind == "report":
            value = number_in(data["metrics"], self._metric)
            if value is not None:
                curve.points[data["step"]] = value
        elif kind == "trial.exploited":  # it continues with other weights, from their step on
            curve.params = data["params"]
            kept = data["checkpoint"]["step"]
            curve.points = {step: value for step, value in curve.points.items() if step <= kept}
        elif kind in STATUS_EVENTS:
            curve.set_status(STATUS_EVENTS[kind], datetime.fromisoformat(event["at"]))


@dataclass(frozen=True)
class Scale:
    """What several curves are drawn in, so that they can be compared: all steps, and most values."""

    last_step: int
    low: float
    high: float

    @classmethod
    def of(cls, curves: list[Curve]) -> "Scale":
        """The scale of curves that have at least one point together."""
        values = sorted(value for curve in curves for value in curve.points.values())
        cut = int(len(values) * OUTLIERS)
        steps = (step for curve in curves for step in curve.points)
        return cls(last_step=max(steps), low=values[cut], high=values[-1 - cut])


def sparkline(points: Mapping[int, float], scale: Scale, width: int) -> str:
    """One character for each column of steps: its newest value, or that of the column before. Blank after the end."""
    columns: dict[int, float] = {}
    for step in sorted(points):
        columns[min(width - 1, max(0, step) * width // (scale.last_step + 1))] = points[step]
    bars, newest = [], None
    for column in range(max(columns, default=-1) + 1):
        newest = columns.get(column, newest)
        bars.append(" " if newest is None else _bar(newest, scale))
    return "".join(bars)


def _bar(value: float, scale: Scale) -> str:
    spread = scale.high - scale.low
    if not spread:
        return BARS[0]
    share = min(1.0, max(0.0, (value - scale.low) / spread))
    return BARS[min(len(BARS) - 1, int(share * len(BARS)))]
