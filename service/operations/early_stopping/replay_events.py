"""Translates the recorded events of an experiment into the events of a replay."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from search.analysis.replay import (
    Completion,
    Created,
    Event,
    ExperimentEnd,
    LeftSlot,
    Queued,
    RecordedReport,
    TrialEvent,
)
from search.early_stopping.compared_metric import ComparedMetric
from search.reported_numbers import number_in
from service.domain.end_reasons import ENDS_THAT_LET_TRIALS_RUN, EndReason
from service.domain.statuses import CAUSES_WITH_RESULT, StopCause
from service.store.events import EventOfKind
from service.store.trials.param_generations import Exploit

KINDS = (
    "trial.created",
    "trial.queued",
    "report",
    "trial.completed",
    "trial.stopped",
    "experiment.ending",
    "experiment.running",
)

ENDS = ("experiment.completed", "experiment.failed", "experiment.stopped")
KINDS_FOR_PAUSING = (*KINDS, *ENDS, "decision", "trial.paused", "trial.failed")
"""The kinds of events that show when trials were paused."""

_BY_KIND: Mapping[str, Callable[[int], TrialEvent | Created]] = {
    "trial.created": Created,
    "trial.queued": Queued,
    "trial.paused": LeftSlot,
}
"""The kinds of which only the number of the trial matters."""


def without_discarded(
    recorded: Iterable[EventOfKind], exploits: Mapping[str, Sequence[Exploit]]
) -> Iterator[EventOfKind]:
    """Leave out reports beyond the milestone from which a trial continued with another trial's weights."""
    for one in recorded:
        own = exploits.get(one.trial_id or "", ()) if one.kind == "report" else ()
        if not any(exploit.discards(one.seq, one.data["step"]) for exploit in own):
            yield one


@dataclass
class StopRequests:
    """Whether a trial had been asked to stop when it reported, as far as events of earlier versions tell.

    They do not tell of a user who stopped the trial, nor of its time limit. A report's event of this version says
    whether the report was judged.

    `objectives`: the metrics that have to be numbers. They tell which trials diverged.
    """

    objectives: Collection[str] = ()
    to_all: bool = False
    to_trials: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, objectives: Iterable[ComparedMetric]) -> Self:
        return cls([one.name for one in objectives])

    def note(self, one: EventOfKind, number: int) -> None:
        match one.kind:
            case "experiment.ending":
                self.to_all = self.to_all or _stops_trials(one)
            case "experiment.running" if "ended_by" in one.data:
                self.to_all = False
            case "trial.queued":
                self.to_trials.discard(number)
            case "report" if self._diverges(one.data["metrics"]):
                self.to_trials.add(number)

    def _diverges(self, metrics: Mapping[str, Any]) -> bool:
        return any(name in metrics and number_in(metrics, name) is None for name in self.objectives)

    def let_judge(self, one: EventOfKind, number: int) -> bool:
        return bool(one.data.get("judged", True)) and not self.to_all and number not in self.to_trials


def replay_events(
    recorded: Iterable[EventOfKind], numbers: Mapping[str, int], metric: str, requests: StopRequests
) -> Iterator[Event]:
    """Reports of trials that had been asked to stop are marked as not judged.

    `requests`: those before the first of the events. They are kept up to date, for events that are recorded later.
    """
    pending = None
    for one in recorded:
        number = numbers.get(one.trial_id or "", -1)
        requests.note(one, number)
        if one.kind == "decision":
            if pending and pending.number == number and one.data["decision"] == "pause":
                pending = replace(pending, pause_requested=True)
            continue
        if pending and one.kind == "experiment.ending" and one.data["reason"] == EndReason.TARGET_REACHED:
            pending = replace(pending, judged=False)  # the report that reached the target
        if pending:
            yield pending
        event = _event(one, number, metric, judged=requests.let_judge(one, number))
        pending = event if isinstance(event, RecordedReport) else None
        if event is not None and pending is None:
            yield event
    if pending:
        yield pending


def _event(one: EventOfKind, number: int, metric: str, *, judged: bool) -> Event | None:
    """None for an event that a replay does not use."""
    if one.kind == "experiment.ending" and _stops_trials(one):
        return ExperimentEnd(dismissed=one.data["reason"] != EndReason.MAX_TRIALS)
    if one.kind in ENDS:
        return ExperimentEnd(dismissed=False)
    return _of_trial(one, number, metric, judged=judged) if number >= 0 else None


def _of_trial(one: EventOfKind, number: int, metric: str, *, judged: bool) -> TrialEvent | Created | None:
    match one.kind:
        case "report":
            value = number_in(one.data["metrics"], metric)
            return None if value is None else RecordedReport(number, one.data["step"], value, judged)
        case "trial.completed" | "trial.stopped" if _ran_to_completion(one):
            return Completion(number)
        case "trial.failed" | "trial.stopped":
            return LeftSlot(number, final=True)
        case kind:
            return _BY_KIND[kind](number) if kind in _BY_KIND else None


def _ran_to_completion(end: EventOfKind) -> bool:
    """As `service.store.trials.ended_trials` says it of the row. An earlier version recorded no cause: it did not."""
    is_own_end = end.data.get("cause", StopCause.USER) in CAUSES_WITH_RESULT
    return end.kind == "trial.completed" or (is_own_end and end.data["values"][0] is not None)


def _stops_trials(ending: EventOfKind) -> bool:
    return EndReason(ending.data["reason"]) not in ENDS_THAT_LET_TRIALS_RUN
