"""The progress of an experiment, computed from its events."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from service.cli.terminal.curves import STATUS_EVENTS, Curves
from service.cli.terminal.outage import OUTAGE_SECONDS, Outage
from service.cli.terminal.value_texts import float_text

RECENT_SENTENCES = 5
FINISHED = ("completed", "pruned", "failed", "stopped")

STATUSES_BY_KIND = STATUS_EVENTS | {"trial.created": "queued"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """Training steps saved by early stopping: for each stopped trial, `longest` less its own steps, summed.

    `longest` is the number of steps of the longest completed trial.
    """

    trials: int
    steps: int
    longest: int


@dataclass
class TrialProgress:
    """Trials by number, after the events so far. `add` takes events in their order.

    `recent` has the last sentences for a live view; `pop_sentences` returns those since the last call. `verdict` is
    what confirmations have shown; None without any.
    """

    metric: str
    last_event: int = 0
    statuses: dict[int, str] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    verdict: str | None = None
    outage_seconds: float = OUTAGE_SECONDS
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT_SENTENCES))
    _unread: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.curves = Curves(self.metric)
        self.outage = Outage(self._say, self.outage_seconds)

    def add(self, event: Json) -> None:
        self.last_event = event["seq"]
        self.curves.add(event)
        if status := STATUSES_BY_KIND.get(event["kind"]):
            self._set_status(status, event["data"])
        elif event["kind"] == "experiment.search_chosen" and (why := event["data"]["early_stopping"]["why"]):
            self._say(f"early stopping: {event['data']['early_stopping']['options']['rule']}: {why}")
        elif event["kind"] == "experiment.confirming":
            self._say(event["data"]["reason"])
        elif event["kind"] == "experiment.confirmed":
            self.verdict = event["data"]["verdict"]
            self._say(f"confirmed: {self.verdict}")

    def pop_sentences(self) -> list[str]:
        sentences, self._unread = self._unread, []
        return sentences

    @property
    def finished(self) -> int:
        """The number of trials that ended or are paused. With promotion, most stay paused until the experiment ends."""
        return sum(status in (*FINISHED, "paused") for status in self.statuses.values())

    @property
    def saved(self) -> Saved:
        completed = [self.steps.get(number, 0) for number, status in self.statuses.items() if status == "completed"]
        pruned = [self.steps.get(number, 0) for number, status in self.statuses.items() if status == "pruned"]
        longest = max(completed, default=0)
        return Saved(len(pruned), sum(max(0, longest - steps) for steps in pruned), longest)

    def _set_status(self, status: str, data: Json) -> None:
        number = data["number"]
        before = self.statuses.get(number) if status == "queued" else None
        self.statuses[number] = status
        if data.get("step") is not None:
            self.steps[number] = data["step"]
        sentence = _sentence(status, data, queued_after=before)
        if sentence:
            self._say(sentence)

    def _say(self, sentence: str) -> None:
        self.recent.append(sentence)
        self._unread.append(sentence)


def _sentence(status: str, data: Json, *, queued_after: str | None) -> str | None:
    """Return the sentence about a trial's new status; None for what needs none, as that it runs."""
    trial, reason = f"trial {data['number']}", data.get("reason")
    because = f": {reason}" if reason else ""
    if status == "completed":
        return f"{trial} completed at step {data.get('step')}{_result(data)}"
    if queued_after == "running":
        return f"{trial} is queued again{because}"
    if queued_after == "paused":
        return f"{trial} resumes{because}"
    words = {"paused": "paused", "pruned": "stopped early", "failed": "failed", "stopped": "stopped"}
    return f"{trial} {words[status]}{because}" if status in words else None


def _result(data: Json) -> str:
    """The values of all objectives, and which constraints are broken."""
    values = (f"{metric} {float_text(value, 6)}" for metric, value in data["values"].items() if value is not None)
    reached = ", ".join(values)
    result = "; ".join(filter(None, [reached, _infeasible(data) if data.get("feasible") is False else ""]))
    return f": {result}" if result else ""


def _infeasible(data: Json) -> str:
    """The reason names the constraints, unless the trial was asked to stop: then it says why."""
    reason = data.get("reason") or ""
    return reason if reason.startswith("infeasible") else "infeasible"
