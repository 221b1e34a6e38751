"""What another early-stopping rule would have done to recorded curves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from search.early_stopping import Memory, Pausing, Release, Reported, Rule, Verdict, decide
from search.early_stopping.in_memory_paused import Paused
from search.early_stopping.measure import Measure
from search.problem import sign_of
from search.space.space import Space


@dataclass(frozen=True)
class Point:
    """A report, in the order in which the service took them.

    `judged`: the trial had not been told to leave before. `told_to_pause`: the service told it so now, and says with
    `Left` when it had gone.
    """

    number: int
    step: int
    value: float
    judged: bool = True
    told_to_pause: bool = False


@dataclass(frozen=True)
class Completion:
    """A trial's end of its own."""

    number: int


@dataclass(frozen=True)
class Left:
    """A trial that was told to pause has gone, and may go on from now; or it is out of the race, `for_good`."""

    number: int
    for_good: bool = False


@dataclass(frozen=True)
class Closing:
    """The experiment ends: those that wait have lost. Unless `dismissed`, the rule is asked first who still goes on."""

    dismissed: bool


OfTrial = Point | Completion | Left
Event = OfTrial | Closing


@dataclass
class Course:
    """A trial's recorded curve, and what the rule would have made of it. Steps are counted, not measured.

    `stop` is what ended it, or where it waits in vain. `stored` came while it was leaving for a pause, `held` when it
    had left: what it would have reported only when it went on. `failed`, or stopped, unless it was tried again.
    """

    step_count: int = 0
    last_value: float | None = None
    stop: Verdict | None = None
    steps_saved: int = 0
    pauses: list[Verdict] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    state: Literal["running", "leaving", "waiting", "over"] = "running"
    failed: bool = False
    stored: list[Point] = field(default_factory=list)
    held: list[tuple[int, OfTrial]] = field(default_factory=list)


def replay(rule: Pausing, measure: Measure, space: Space, events: Iterable[Event]) -> dict[int, Course]:
    """By the trials' numbers.

    A trial that the rule stops is none of those that have completed, or reached later milestones, when others are
    judged. What a trial would have reported where its curve ends early is not known, and it never completes.
    """
    course = _Replay(rule, measure, space)
    for place, event in enumerate(events):
        course.take(place, event)
    course.close(dismissed=True)
    return course.courses


def remember(rule: Rule, measure: Measure, events: Iterable[Event]) -> Memory:
    """What the rule would have stored of trials that it did not judge."""
    memory = Memory()
    for event in events:
        match event:
            case Point(number=number):
                curve = memory.curves[number]
                report = _report(measure, event, max(curve, default=None))
                curve[event.step] = event.value
                history = memory.of(number)
                for milestone in rule.milestones(report, history):
                    history.reach(milestone, event.value, rule.pool_of(number))
            case Completion(number=number) if memory.curves[number]:
                memory.complete(rule, number, list(memory.curves[number].values())[-1])
    return memory


def best_of(values: Mapping[int, float], measure: Measure) -> int | None:
    """The number of the trial with the best value, the first of those that tie."""
    if not values:
        return None
    sign = sign_of(measure.direction)
    return min(values, key=lambda number: (sign * values[number], number))


class _Replay:
    """The service in small: it takes what was recorded, in its order or when the rule lets it come."""

    def __init__(self, rule: Pausing, measure: Measure, space: Space) -> None:
        self.courses: dict[int, Course] = {}
        self._rule, self._measure = rule, measure
        self._memory = Memory()
        self._paused = Paused(self._memory, measure.metric, measure.direction, space)
        self._judged: dict[int, int] = {}
        self._ready: list[tuple[int, OfTrial]] = []

    def take(self, place: int, event: Event) -> None:
        if isinstance(event, Closing):
            self.close(dismissed=event.dismissed)
            return
        self._take(place, event)
        self._catch_up()

    def close(self, *, dismissed: bool) -> None:
        while not dismissed and self._release_the_last():
            self._catch_up()
        for number, course in self.courses.items():
            if course.state in ("leaving", "waiting"):
                self._give_up(number, course)

    def _release_the_last(self) -> bool:
        """What came to no end that is recorded may have completed."""
        self._paused.any_completed = any(one.state == "running" and not one.failed for one in self.courses.values())
        return self._release(others_may_come=False)

    def _catch_up(self) -> None:
        while self._ready:
            self._take(*heappop(self._ready))

    def _take(self, place: int, event: OfTrial) -> None:
        course = self.courses.setdefault(event.number, Course())
        match course.state, event:
            case "running", Left(for_good=True):
                course.failed = True
            case "running", Point():
                course.failed = False
                if self._report(course, event):
                    self._release()
            case "running", Completion() if course.last_value is not None:
                self._memory.complete(self._rule, event.number, course.last_value)
            case "over", Point():
                self._save(course, event)
            case "leaving", Point():
                course.stored.append(event)
            case "leaving", Left(for_good=False):
                self._wait(event.number, course)
                self._release()
            case "leaving", _:
                self._end_instead(course)
                self._take(place, event)
            case "waiting", _:
                self._hold(place, event, course)

    def _end_instead(self, course: Course) -> None:
        """It never came to wait: it was through, or failed, or a user stopped it."""
        course.state, course.stop = "running", None
        for point in course.stored:
            self._count(course, point)
        course.stored = []

    def _hold(self, place: int, event: OfTrial, course: Course) -> None:
        if isinstance(event, Left) and event.for_good and not course.held:
            self._give_up(event.number, course)  # a user's word, while it waited in truth as well
        else:
            course.held.append((place, event))

    def _report(self, course: Course, point: Point) -> bool:
        """Whether the rule had something to say."""
        self._count(course, point)
        before = self._judged.get(point.number)
        self._judged[point.number] = point.step if before is None else max(point.step, before)
        if not point.judged:
            return False
        report = _report(self._measure, point, before)
        verdicts = list(decide(self._rule, report, self._memory.of(point.number)))
        if verdicts and verdicts[-1].stop:
            self._stop(course, point, verdicts[-1])
        return bool(verdicts)

    def _stop(self, course: Course, point: Point, verdict: Verdict) -> None:
        course.stop = verdict
        if not verdict.pauses:
            course.state = "over"
            return
        course.pauses.append(verdict)
        self._judged[point.number] = verdict.milestone
        if point.told_to_pause:
            course.state = "leaving"
        else:
            self._wait(point.number, course)

    def _wait(self, number: int, course: Course) -> None:
        place = course.pauses[-1]
        course.state = "waiting"
        self._paused.pause(number, place.milestone, place.value, self._rule.pool_of(number))

    def _release(self, *, others_may_come: bool = True) -> bool:
        """Whether anybody goes on. What is ready to come then runs."""
        any_at_all, found = False, self._rule.pauses
        self._paused.others_may_come = others_may_come
        while found:
            found = False
            for release in self._rule.releases(self._paused):
                any_at_all = found = True
                self._let_go_on(release)
        return any_at_all

    def _let_go_on(self, release: Release) -> None:
        course = self.courses[release.number]
        self._paused.resume(release.number)
        course.releases.append(release)
        course.state, course.stop = "running", None
        while course.stored and course.state == "running":
            self._report(course, course.stored.pop(0))
        if course.state == "running":
            self._paused.others_may_come = True
            for one in course.held:
                heappush(self._ready, one)
            course.held = []

    def _give_up(self, number: int, course: Course) -> None:
        if course.state == "waiting":
            self._paused.resume(number)
        course.state = "over"
        for point in [*course.stored, *(event for _, event in course.held)]:
            if isinstance(point, Point):
                self._save(course, point)

    def _save(self, course: Course, point: Point) -> None:
        course.steps_saved += self._count(course, point)

    def _count(self, course: Course, point: Point) -> int:
        curve = self._memory.curves[point.number]
        added = point.step not in curve
        curve[point.step] = point.value
        course.last_value = point.value
        course.step_count += added
        return int(added)


def _report(measure: Measure, point: Point, previous_step: int | None) -> Reported:
    return Reported(point.number, measure.metric, measure.direction, point.step, point.value, previous_step)
