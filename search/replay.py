"""What another early-stopping rule would have done to recorded curves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from search.early_stopping import Memory, Reported, Rule, Verdict, decide
from search.early_stopping.measure import Measure


@dataclass(frozen=True)
class Point:
    """A report, in the order in which the service took them. `judged`: the trial had not been told to leave before."""

    number: int
    step: int
    value: float
    judged: bool = True


@dataclass(frozen=True)
class Completion:
    """A trial's end of its own."""

    number: int


@dataclass
class Course:
    """A trial's recorded curve, and where the rule would have ended it. Steps are counted, not measured."""

    step_count: int = 0
    last_value: float | None = None
    stop: Verdict | None = None
    steps_saved: int = 0


def replay(rule: Rule, measure: Measure, events: Iterable[Point | Completion]) -> dict[int, Course]:
    """By the trials' numbers.

    A trial that the rule stops is none of those that have completed, or reached later milestones, when others are
    judged. What a trial would have reported where its curve ends early is not known, and it never completes.
    """
    memory = Memory()
    courses: dict[int, Course] = {}
    judged_steps: dict[int, int] = {}
    for event in events:
        course = courses.setdefault(event.number, Course())
        if isinstance(event, Point):
            _take(rule, measure, event, course, memory, judged_steps)
        elif course.stop is None and course.last_value is not None:
            memory.complete(rule, event.number, course.last_value)
    return courses


def remember(rule: Rule, measure: Measure, events: Iterable[Point | Completion]) -> Memory:
    """What the rule would have stored of trials that it did not judge."""
    memory = Memory()
    for event in events:
        curve = memory.curves[event.number]
        if isinstance(event, Point):
            report = _report(measure, event, max(curve, default=None))
            curve[event.step] = event.value
            history = memory.of(event.number)
            for milestone in rule.milestones(report, history):
                history.reach(milestone, event.value, rule.pool_of(event.number))
        elif curve:
            memory.complete(rule, event.number, list(curve.values())[-1])
    return memory


def _take(
    rule: Rule, measure: Measure, point: Point, course: Course, memory: Memory, judged_steps: dict[int, int]
) -> None:
    curve = memory.curves[point.number]
    curve[point.step] = point.value
    course.last_value = point.value
    added = len(curve) - course.step_count
    course.step_count += added
    if course.stop is not None:
        course.steps_saved += added
        return
    before = judged_steps.get(point.number)
    judged_steps[point.number] = point.step if before is None else max(point.step, before)
    if point.judged:
        course.stop = _stop(rule, _report(measure, point, before), memory)


def _report(measure: Measure, point: Point, previous_step: int | None) -> Reported:
    return Reported(point.number, measure.metric, measure.direction, point.step, point.value, previous_step)


def _stop(rule: Rule, report: Reported, memory: Memory) -> Verdict | None:
    verdicts = list(decide(rule, report, memory.of(report.number)))
    return verdicts[-1] if verdicts and verdicts[-1].stop else None


def best_of(values: Mapping[int, float], measure: Measure) -> int | None:
    """The number of the trial with the best value, the first of those that tie."""
    if not values:
        return None
    sign = 1 if measure.direction == "minimize" else -1
    return min(values, key=lambda number: (sign * values[number], number))
