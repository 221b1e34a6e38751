"""A curve in memory answers as a plain dict that is read whole, and a report compares as few values late as early."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.analysis.replay import Completion, Event, RecordedReport, add_to_history, replay
from search.early_stopping import AT_END, InMemoryHistory, Rule
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.in_memory_curve import InMemoryCurve
from search.problem import Direction
from search.space.space import Space
from tests.unit.search.early_stopping.trials import rule_of

DIRECTIONS: tuple[Direction, ...] = ("minimize", "maximize")
# Some are drawn often, so that they tie.
VALUES = st.integers(-3, 3).map(lambda one: one / 2) | st.sampled_from([-0.0, math.nan, math.inf])
SPACE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
METRIC = ComparedMetric("accuracy", "maximize")
STEPS = 1_000
MAX_COMPARISONS = 40
"""The most for a report, on average. Most of them find where it belongs among other reports."""


def best(values: Sequence[float], direction: Direction) -> float:
    return max(values) if direction == "maximize" else min(values)


def best_since_and_before(curve: dict[int, float], count: int, direction: Direction) -> tuple[float, float] | None:
    values = [curve[step] for step in sorted(curve)]
    since, before = values[-count:], values[:-count]
    return (best(since, direction), best(before, direction)) if before else None


@given(
    reports=st.lists(st.tuples(st.integers(0, 12), VALUES, st.booleans()), max_size=40),
    count=st.integers(1, 5) | st.just(10**30),
    direction=st.sampled_from(DIRECTIONS),
)
def test_a_curve_answers_as_a_plain_dict(
    reports: list[tuple[int, float, bool]], count: int, direction: Direction
) -> None:
    """Steps may come late or again, and the curve may be read after each report or not."""
    curve, plain = InMemoryCurve(), dict[int, float]()
    for step, value, is_read in reports:
        curve[step] = plain[step] = value
        if is_read:
            assert (list(curve), len(curve), curve.last_step) == (list(plain), len(plain), max(plain))
            assert curve.by_step == plain
            # Their texts, because NaN differs from itself and 0 equals -0.
            assert repr(curve.best(direction)) == repr(best(list(plain.values()), direction))
            expected = best_since_and_before(plain, count, direction)
            assert repr(curve.best_since_and_before(count, direction)) == repr(expected)


def test_the_value_at_the_end_is_that_of_the_newest_report_also_if_its_step_was_reported_before() -> None:
    reports = [(1, 0.5), (2, 0.6), (3, 0.9), (2, 0.3)]
    events: list[Event] = [*(RecordedReport(0, step, value) for step, value in reports), Completion(0)]
    history = InMemoryHistory()
    add_to_history(history, rule_of(rule="hyperband", max_step=9, weighted=True), METRIC, events, {})
    assert history.value_at(0, AT_END) == 0.3


def test_the_value_at_the_end_is_that_of_the_best_report_where_that_counts() -> None:
    reports = [(1, 0.5), (2, 0.9), (3, 0.6)]
    events: list[Event] = [*(RecordedReport(0, step, value) for step, value in reports), Completion(0)]
    history, metric = InMemoryHistory(), ComparedMetric("accuracy", "maximize", takes_best=True)
    add_to_history(history, rule_of(rule="hyperband", max_step=9, weighted=True), metric, events, {})
    assert history.value_at(0, AT_END) == 0.9


class CountedFloat(float):
    """Counts the comparisons of all of them."""

    comparison_count: ClassVar[int] = 0

    def __lt__(self, other: float) -> bool:
        CountedFloat.comparison_count += 1
        return float(self) < float(other)

    def __gt__(self, other: float) -> bool:
        CountedFloat.comparison_count += 1
        return float(self) > float(other)


class CountedInt(int):
    """Counts the comparisons of all of them."""

    comparison_count: ClassVar[int] = 0

    def __lt__(self, other: int) -> bool:
        CountedInt.comparison_count += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        CountedInt.comparison_count += 1
        return int(self) > int(other)


def long_curves() -> list[Event]:
    """Two trials, one after the other, that become better from step to step."""
    events: list[Event] = []
    for number in (0, 1):
        events += [RecordedReport(number, CountedInt(step), CountedFloat(step + number)) for step in range(STEPS)]
        events.append(Completion(number))
    return events


def replayed(rule: Rule, events: list[Event]) -> None:
    assert all(one.stop is None for one in replay(rule, METRIC, SPACE, events).values())


def recorded(rule: Rule, events: list[Event]) -> None:
    history = InMemoryHistory()
    add_to_history(history, rule, METRIC, events, {})
    assert len(history.curves[1]) == STEPS


@pytest.mark.parametrize("run", [replayed, recorded])
@pytest.mark.parametrize(
    "options",
    [
        {"rule": "none"},
        {"rule": "median", "n_startup_trials": 1},
        {"rule": "patient", "patience": 3},
        {"rule": "patient", "patience": 3, "wrapped_rule": {"rule": "asha"}},
        {"rule": "patient", "patience": 3, "wrapped_rule": {"rule": "hyperband", "max_step": STEPS}},
        {"rule": "patient", "patience": 3, "wrapped_rule": {"rule": "median", "n_startup_trials": 1}},
    ],
    ids=str,
)
def test_a_report_compares_few_values_however_long_its_curve_is(
    run: Callable[[Rule, list[Event]], None], options: dict[str, Any]
) -> None:
    rule, events = rule_of(**options), long_curves()
    CountedFloat.comparison_count = CountedInt.comparison_count = 0
    run(rule, events)
    count = CountedFloat.comparison_count + CountedInt.comparison_count
    assert count < MAX_COMPARISONS * len(events)
