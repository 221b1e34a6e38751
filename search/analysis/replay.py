"""Replay: what another early stopping rule would have decided on recorded reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.decision import Release, Verdict
from search.early_stopping.history import ALL, MetricReport
from search.early_stopping.in_memory_history import InMemoryHistory
from search.early_stopping.in_memory_paused_trials import InMemoryPausedTrials
from search.early_stopping.plugin_rules import (
    bracket_of,
    has_trait,
    milestones_of,
    releases_of,
    verdicts_of,
)
from search.early_stopping.rule import Rule
from search.problem import sign_of
from search.space.space import Space


@dataclass(frozen=True)
class Created:
    """The trial has been created: a rule with brackets gives it one now."""

    number: int


@dataclass(frozen=True)
class RecordedReport:
    """A recorded report, in the order in which the service stored them.

    `judged`: the service had not asked the trial to stop before. `pause_requested`: the service asked the trial to
    pause after this report; a `LeftSlot` follows when the trial has left its slot.
    """

    number: int
    step: int
    value: float
    judged: bool = True
    pause_requested: bool = False


@dataclass(frozen=True)
class Completion:
    """The trial has ended by itself, or by its own time limit."""

    number: int


@dataclass(frozen=True)
class Queued:
    """The trial is queued again. If it had run to its end, a user has retried it, and it has not ended any more."""

    number: int


@dataclass(frozen=True)
class LeftSlot:
    """The trial has left its slot to pause, and may resume from now on.

    If `final`, it has failed, or a user or the end of the experiment has stopped it.
    """

    number: int
    final: bool = False


@dataclass(frozen=True)
class ExperimentEnd:
    """The experiment ends: trials that are still paused have lost.

    Unless `dismissed`, the rule first decides which of them resume.
    """

    dismissed: bool


TrialEvent = RecordedReport | Completion | Queued | LeftSlot
Event = Created | TrialEvent | ExperimentEnd
Brackets = Mapping[int, int]
"""The brackets that are stored with trials, by trial number."""


@dataclass
class TrialReplay:
    """A trial's recorded reports, and what the rule would have decided. A step count is the number of distinct steps.

    `stop` is the verdict that ended the trial, or that paused it until the end; a paused trial waits in `pool`.
    `failed`: it has failed or was stopped, and was not retried since. `reports_before_pause` came while the trial was
    leaving its slot for a pause. `held` are events that were recorded while the replayed rule pauses the trial: they
    are replayed when it resumes.
    """

    step_count: int = 0
    last_value: float | None = None
    stop: Verdict | None = None
    pool: int = ALL
    steps_saved: int = 0
    pauses: list[Verdict] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    state: Literal["running", "leaving", "paused", "ended"] = "running"
    failed: bool = False
    reports_before_pause: list[RecordedReport] = field(default_factory=list)
    held: list[tuple[int, TrialEvent]] = field(default_factory=list)


def replay(
    rule: Rule,
    metric: ComparedMetric,
    space: Space,
    events: Iterable[Event],
    *,
    seed: int = 0,
    brackets: Brackets | None = None,
) -> dict[int, TrialReplay]:
    """What the rule would have decided, by trial number.

    `brackets`: those that are stored, if the rule is the one that has drawn them. Otherwise the rule draws from `seed`.

    When other trials are judged, a trial that the rule stopped has neither completed nor reached later milestones. A
    trial whose recorded curve ends early never completes, because its further reports are not known.
    """
    replayed = _Replay(rule, metric, space, seed, brackets)
    for index, event in enumerate(events):
        replayed.take(index, event)
    replayed.close(dismissed=True)
    return replayed.trials


def add_to_history(
    history: InMemoryHistory, rule: Rule, metric: ComparedMetric, events: Iterable[Event], brackets: Brackets
) -> None:
    """Add the milestones that the trials have reached by the rule, if it stopped none of them.

    A report that was not judged reaches none.
    """
    for event in events:
        match event:
            case RecordedReport(number=number):
                curve = history.curves[number]
                report = _metric_report(metric, event, curve.last_step, brackets.get(number))
                curve[event.step] = event.value
                own = history.of(number)
                for milestone, pool in milestones_of(rule, report, own) if event.judged else ():
                    own.reach(milestone, event.value, pool)
            case Completion(number=number) if (result := metric.result_of(history.curves[number])) is not None:
                history.complete(rule, number, result)
            case Queued(number=number):
                history.reopen(rule, number, brackets.get(number))


def best_of(values: Mapping[int, float], metric: ComparedMetric) -> int | None:
    """The number of the trial with the best value, the lowest of those that tie; None if there is none."""
    if not values:
        return None
    sign = sign_of(metric.direction)
    return min(values, key=lambda number: (sign * values[number], number))


class _Replay:
    """Simulates the service. Events are replayed in recorded order, but those of a paused trial when it resumes."""

    def __init__(self, rule: Rule, metric: ComparedMetric, space: Space, seed: int, brackets: Brackets | None) -> None:
        self.trials: dict[int, TrialReplay] = {}
        self._rule, self._metric, self._seed = rule, metric, seed
        self._history = InMemoryHistory()
        self._paused = InMemoryPausedTrials(self._history, metric.name, metric.direction, space)
        self._draws = brackets is None
        self._brackets = dict(brackets or {})
        self._judged_steps: dict[int, int] = {}
        self._ready: list[tuple[int, TrialEvent]] = []

    def take(self, index: int, event: Event) -> None:
        match event:
            case ExperimentEnd():
                self.close(dismissed=event.dismissed)
            case Created(number):
                self._create(number)
            case _:
                self._apply(index, event)
                self._catch_up()

    def _create(self, number: int) -> None:
        drawn = bracket_of(self._rule, number, self._seed, self._history) if self._draws else None
        if drawn is not None:
            self._brackets[number] = drawn.number

    def close(self, *, dismissed: bool) -> None:
        while not dismissed and self._release_last():
            self._catch_up()
        for number, trial in self.trials.items():
            if trial.state in ("leaving", "paused"):
                self._end(number, trial)

    def _release_last(self) -> bool:
        """A trial without a recorded end may have completed."""
        self._paused.any_completed = any(one.state == "running" and not one.failed for one in self.trials.values())
        return self._release(others_may_come=False)

    def _catch_up(self) -> None:
        while self._ready:
            self._apply(*heappop(self._ready))

    def _apply(self, index: int, event: TrialEvent) -> None:
        if isinstance(event, Queued):
            self._queue(index, event)
        else:
            self._take(index, event)

    def _queue(self, index: int, event: Queued) -> None:
        trial = self.trials.get(event.number)
        if trial is not None and trial.state == "running":
            self._history.reopen(self._rule, event.number, self._brackets.get(event.number))
        elif trial is not None and any(isinstance(one, Completion) for _, one in trial.held):
            trial.held.append((index, event))

    def _take(self, index: int, event: RecordedReport | Completion | LeftSlot) -> None:
        trial = self.trials.setdefault(event.number, TrialReplay())
        match trial.state, event:
            case "running", LeftSlot(final=True):
                trial.failed = True
            case "running", RecordedReport():
                trial.failed = False
                if self._report(trial, event):
                    self._release()
            case "running", Completion() if (result := self._result(event.number)) is not None:
                self._history.complete(self._rule, event.number, result)
            case "ended", RecordedReport():
                self._save(trial, event)
            case "leaving", RecordedReport():
                trial.reports_before_pause.append(event)
            case "leaving", LeftSlot(final=False):
                self._pause(event.number, trial)
                self._release()
            case "leaving", _:
                self._end_without_pause(trial)
                self._take(index, event)
            case "paused", _:
                self._hold(index, event, trial)

    def _result(self, number: int) -> float | None:
        return self._metric.result_of(self._history.curves[number])

    def _end_without_pause(self, trial: TrialReplay) -> None:
        """The trial completed, failed or was stopped before it was paused."""
        trial.state, trial.stop = "running", None
        for report in trial.reports_before_pause:
            self._count(trial, report)
        trial.reports_before_pause = []

    def _hold(self, index: int, event: TrialEvent, trial: TrialReplay) -> None:
        if isinstance(event, LeftSlot) and event.final and not trial.held:
            self._end(event.number, trial)  # a user stopped it while it was also paused in reality
        else:
            trial.held.append((index, event))

    def _report(self, trial: TrialReplay, report: RecordedReport) -> bool:
        """Whether the rule made a decision."""
        self._count(trial, report)
        before = self._judged_steps.get(report.number)
        self._judged_steps[report.number] = report.step if before is None else max(report.step, before)
        if not report.judged:
            return False
        metric_report = _metric_report(self._metric, report, before, self._brackets.get(report.number))
        verdicts = list(verdicts_of(self._rule, metric_report, self._history.of(report.number)))
        if verdicts and verdicts[-1][0].stop:
            self._stop(trial, report, *verdicts[-1])
        return bool(verdicts)

    def _stop(self, trial: TrialReplay, report: RecordedReport, verdict: Verdict, pool: int) -> None:
        trial.stop, trial.pool = verdict, pool
        if not verdict.pauses:
            trial.state = "ended"
            return
        trial.pauses.append(verdict)
        self._judged_steps[report.number] = verdict.milestone
        if report.pause_requested:
            trial.state = "leaving"
        else:
            self._pause(report.number, trial)

    def _pause(self, number: int, trial: TrialReplay) -> None:
        verdict = trial.pauses[-1]
        trial.state = "paused"
        self._paused.pause(number, verdict.milestone, verdict.value, trial.pool)

    def _release(self, *, others_may_come: bool = True) -> bool:
        """Resume the trials that the rule releases; whether there were any. Their held events become ready."""
        any_released, found = False, has_trait(self._rule, "pauses")
        self._paused.others_may_come = others_may_come
        while found:
            found = False
            for release in releases_of(self._rule, self._paused):
                any_released = found = True
                self._resume(release)
        return any_released

    def _resume(self, release: Release) -> None:
        trial = self.trials[release.number]
        self._paused.resume(release.number)
        trial.releases.append(release)
        trial.state, trial.stop = "running", None
        while trial.reports_before_pause and trial.state == "running":
            self._report(trial, trial.reports_before_pause.pop(0))
        if trial.state == "running":
            self._paused.others_may_come = True
            for one in trial.held:
                heappush(self._ready, one)
            trial.held = []

    def _end(self, number: int, trial: TrialReplay) -> None:
        if trial.state == "paused":
            self._paused.resume(number)
        trial.state = "ended"
        for event in [*trial.reports_before_pause, *(one for _, one in trial.held)]:
            if isinstance(event, RecordedReport):
                self._save(trial, event)

    def _save(self, trial: TrialReplay, report: RecordedReport) -> None:
        trial.steps_saved += self._count(trial, report)

    def _count(self, trial: TrialReplay, report: RecordedReport) -> int:
        curve = self._history.curves[report.number]
        added = report.step not in curve
        curve[report.step] = report.value
        trial.last_value = report.value
        trial.step_count += added
        return int(added)


def _metric_report(
    metric: ComparedMetric, report: RecordedReport, previous_step: int | None, bracket: int | None
) -> MetricReport:
    return MetricReport(report.number, metric.name, metric.direction, report.step, report.value, previous_step, bracket)
