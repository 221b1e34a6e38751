"""Successive halving with promotion is that of the paper, and its replay delays the reports of paused trials."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from search.analysis.replay import Completion, Event, ExperimentEnd, LeftSlot, RecordedReport, TrialReplay, replay
from search.early_stopping import InMemoryHistory, MetricReport, Rule
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.in_memory_paused_trials import InMemoryPausedTrials as InMemory
from search.early_stopping.rules.asha import Asha
from search.early_stopping.rules.hyperband import Hyperband
from search.problem import Direction, sign_of
from search.space.space import Space
from tests.unit.search.early_stopping.trials import complaints, rule_of

SPACE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
DIRECTIONS: st.SearchStrategy[Any] = st.sampled_from(["minimize", "maximize"])


class Race:
    """Trials that run to their next rung one at a time, in any order, and are paused there or not."""

    def __init__(self, rule: Rule, direction: Direction, waiting: type[InMemory] = InMemory) -> None:
        self.rule, self.direction = rule, direction
        self.memory = InMemoryHistory()
        self.paused = waiting(self.memory, "accuracy", direction, SPACE)
        self.more_to_come = True
        self.running: set[int] = set()
        self.steps: dict[int, int | None] = defaultdict(lambda: None)

    def arrive(self, number: int, step: int, value: float) -> None:
        report = MetricReport(number, "accuracy", self.direction, step, value, self.steps[number])
        self.steps[number] = step
        [verdict] = self.rule.decide(report, self.memory.of(number))
        if verdict.pauses:
            self.running.remove(number)
            self.paused.pause(number, verdict.milestone, verdict.value, self.rule.pool_of(number))
        if isinstance(self.paused, OnlyReached):
            self.paused.reached = verdict.milestone
        self.release()

    def release(self) -> list[int]:
        self.paused.others_may_come = self.more_to_come or bool(self.running)
        released = []
        for one in self.rule.releases(self.paused):
            self.paused.resume(one.number)
            self.running.add(one.number)
            self.paused.others_may_come = True
            released.append(one.number)
        return released


class OnlyReached(InMemory):
    """Returns only the milestone that a trial has just reached, as the service does after each report."""

    reached = 0

    def milestones(self) -> Sequence[int]:
        return [self.reached] if self.others_may_come else super().milestones()


class Paper:
    """Li et al. (2020), algorithm 2, literally: the best share of a rung, except those promoted before.

    With `extra_count` more.
    """

    def __init__(self, reduction_factor: int, direction: Direction, extra_count: int = 0) -> None:
        self.reduction_factor, self.sign, self.extra_count = reduction_factor, sign_of(direction), extra_count
        self.rungs: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.promoted: dict[int, set[int]] = defaultdict(set)

    def arrive(self, number: int, step: int, value: float) -> None:
        self.rungs[step].append((self.sign * value, number))
        for rung, reached in self.rungs.items():
            best = sorted(reached)[: len(reached) // self.reduction_factor + self.extra_count]
            self.promoted[rung] |= {number for _, number in best}


@given(st.data(), DIRECTIONS, st.integers(2, 4), st.integers(0, 3), st.sampled_from([InMemory, OnlyReached]))
def test_trials_are_promoted_as_in_the_paper(
    data: st.DataObject,
    direction: Direction,
    reduction_factor: int,
    extra_count: int,
    waiting: type[InMemory],
) -> None:
    rule = Asha(promote=True, reduction_factor=reduction_factor, extra_count=extra_count)
    race = Race(rule, direction, waiting)
    paper = Paper(reduction_factor, direction, extra_count)
    next_rung: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 40), label="arrivals")):
        number = data.draw(st.sampled_from([*sorted(race.running), len(next_rung)]), label="trial")
        race.running.add(number)
        step = next_rung.get(number, 1)
        next_rung[number] = step * reduction_factor
        value = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(-9, 9), label="value")
        race.arrive(number, step, value)
        paper.arrive(number, step, value)
        going_on = {one for one, rung in next_rung.items() if one in paper.promoted[rung // reduction_factor]}
        assert race.running == going_on


def test_when_no_others_may_come_one_trial_of_each_pool_is_promoted() -> None:
    rule = Hyperband(promote=True, max_step=9)
    race = Race(rule, "maximize")
    first = {rule.bracket_of(number): number for number in reversed(range(20)) if rule.bracket_of(number) < 2}
    race.running |= set(first.values())
    for number in first.values():
        race.arrive(number, rule.first_rung(rule.pool_of(number)), 0.5)
    assert race.running == set()
    race.more_to_come = False
    assert sorted(race.release()) == sorted(first.values())


@given(st.data(), DIRECTIONS, st.sampled_from([InMemory, OnlyReached]))
def test_each_bracket_of_hyperband_promotes_as_in_the_paper(
    data: st.DataObject, direction: Direction, waiting: type[InMemory]
) -> None:
    rule = Hyperband(promote=True, max_step=8, reduction_factor=2)
    race = Race(rule, direction, waiting)
    papers = [Paper(2, direction) for _ in range(4)]
    next_step: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 60), label="reports")):
        number = data.draw(st.sampled_from([*sorted(race.running), len(next_step)]), label="trial")
        race.running.add(number)
        step = next_step.setdefault(number, rule.first_rung(rule.pool_of(number)))
        value = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(-9, 9), label="value")
        next_step[number] = 2 * step
        if step >= rule.max_step:
            race.running.remove(number)
            continue
        race.arrive(number, step, value)
        papers[rule.bracket_of(number)].arrive(number, step, value)
        assert race.running == {
            one
            for one, rung in next_step.items()
            if rung <= rule.max_step and one in papers[rule.bracket_of(one)].promoted[rung // 2]
        }


KINDS: list[type[Asha | Hyperband]] = [Asha, Hyperband]


@given(st.data(), st.integers(1, 12), st.integers(2, 4), st.sampled_from(KINDS))
def test_when_no_others_may_come_at_least_one_trial_of_each_pool_runs_to_the_end(
    data: st.DataObject, count: int, reduction_factor: int, kind: type[Asha | Hyperband]
) -> None:
    last = reduction_factor**4
    rule = kind(promote=True, reduction_factor=reduction_factor, max_step=last)
    race = Race(rule, "maximize")
    steps = {number: rule.first_rung(rule.pool_of(number)) for number in range(count)}
    race.running |= set(steps)
    race.more_to_come = False
    while race.running or race.release():
        number = data.draw(st.sampled_from(sorted(race.running)))
        if steps[number] >= last:
            race.running.remove(number)
            continue
        race.arrive(number, steps[number], data.draw(st.floats(0, 1)))
        steps[number] *= reduction_factor
    at_end = {rule.pool_of(number) for number, step in steps.items() if step >= last}
    assert at_end == {rule.pool_of(number) for number in steps}


def replayed(events: Iterable[Event], **options: Any) -> dict[int, TrialReplay]:
    rule = Asha(promote=True, **options)
    return replay(rule, ComparedMetric("accuracy", "maximize"), SPACE, events)


def ran(number: int, value: float, steps: int = 9) -> list[Event]:
    return [*(RecordedReport(number, step, value) for step in range(1, steps + 1)), Completion(number)]


def test_a_replay_holds_the_reports_of_a_paused_trial_until_it_is_promoted() -> None:
    """The third trial is the best, which is unknown before it reports; the first is promoted when six have come."""
    events = [one for number, value in enumerate([0.8, 0.1, 0.9, 0.2, 0.3, 0.4]) for one in ran(number, value)]
    courses = replayed([*events, ExperimentEnd(dismissed=False)])
    assert [course.steps_saved for course in courses.values()] == [6, 8, 0, 8, 8, 8]
    assert [(one.number, one.milestone, one.compared_count) for one in courses[0].releases] == [(0, 1, 5)]
    assert courses[0].stop is not None
    assert courses[0].stop.milestone == 3
    assert courses[0].stop.compared_with == ()
    assert [pause.milestone for pause in courses[2].pauses] == [3, 9]
    assert [release.milestone for release in courses[2].releases] == [3, 9]
    assert courses[2].stop is None


def test_trials_that_are_paused_when_the_events_end_have_lost() -> None:
    courses = replayed([*ran(0, 0.8), *ran(1, 0.1), ExperimentEnd(dismissed=True), *ran(2, 0.9)])
    assert [course.steps_saved for course in courses.values()] == [8, 8, 6]
    assert not courses[0].releases


def test_a_trial_that_is_leaving_is_not_promoted_and_its_reports_are_judged_when_it_resumes() -> None:
    pausing = RecordedReport(0, 1, 0.5, pause_requested=True)
    before = [
        pausing,
        *(RecordedReport(0, step, 0.5 + step / 10) for step in (2, 3)),
        RecordedReport(1, 1, 0.1),
        RecordedReport(2, 1, 0.2),
    ]
    assert not replayed(before)[0].releases
    course = replayed([*before, LeftSlot(0)])[0]
    assert [one.milestone for one in course.releases] == [1]
    assert [(pause.milestone, pause.value) for pause in course.pauses] == [(1, 0.5), (3, 0.8)]
    assert replayed([*before, Completion(0)])[0].stop is None
    failed = replayed([*before, LeftSlot(0, final=True)])[0]
    assert (failed.stop, failed.step_count) == (None, 3)


def test_a_paused_trial_that_a_user_stops_is_not_promoted() -> None:
    pausing = [replace(one, pause_requested=True) for one in (RecordedReport(0, 1, 0.5), RecordedReport(1, 1, 0.4))]
    courses = replayed(
        [
            *pausing,
            LeftSlot(0),
            LeftSlot(1),
            LeftSlot(0, final=True),
            RecordedReport(2, 1, 0.1),
            *(RecordedReport(n, 1, 0) for n in (3, 4, 5)),
        ]
    )
    assert not courses[0].releases
    assert [one.milestone for one in courses[1].releases] == [1]


def test_no_trial_is_paused_at_its_last_step() -> None:
    courses = replayed([one for number in range(3) for one in ran(number, number)], max_step=9)
    assert [pause.milestone for course in courses.values() for pause in course.pauses] == [1, 1, 3]


def test_hyperband_pauses_no_trial_at_its_last_step() -> None:
    rule = Hyperband(promote=True, max_step=9)
    events = [one for number in range(60) for one in ran(number, number)]
    courses = replay(rule, ComparedMetric("accuracy", "maximize"), SPACE, events)
    waited = {(rule.bracket_of(number), one.milestone) for number, course in courses.items() for one in course.pauses}
    assert waited == {(0, 1), (0, 3), (1, 3)}


def test_a_patient_rule_refuses_a_wrapped_rule_that_pauses() -> None:
    said = complaints(lambda: rule_of(rule="patient", patience=1, wrapped_rule={"rule": "asha", "promote": True}))
    assert said == [
        "early_stopping.wrapped_rule: must be a rule that does not pause trials, such as asha without promote"
    ]
