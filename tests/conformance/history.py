"""The contract of `search.early_stopping.History`, for each implementation to inherit."""

from typing import Protocol

import numpy as np
import pytest
from pydantic import TypeAdapter

from search.early_stopping import AT_END, COMPLETED, EarlyStoppingSpec, History, Rule
from search.early_stopping.history import ALL
from search.problem import Direction

TRIALS = 12
OTHER_POOL = 1


class Experiment(Protocol):
    """An experiment of TRIALS running trials, numbered from 0, which an implementation records."""

    def report(self, number: int, step: int, value: float) -> None:
        """Store a report of the trial."""

    def of(self, number: int, previous_step: int | None = None) -> History:
        """The history for a rule that judges a report of the trial, whose earlier reports end at `previous_step`."""

    def complete(self, number: int, rule: Rule) -> None:
        """Record that the trial has completed, for a rule that compares with completed trials."""

    def reopen(self, number: int, rule: Rule) -> None:
        """Record that the trial, which has completed, is retried."""


class HistoryConformance:
    """Inherit in a test module, with a fixture `experiment`."""

    def test_the_first_value_at_a_milestone_is_kept(self, experiment: Experiment) -> None:
        assert experiment.of(0).reach(3, 0.5, ALL)
        assert not experiment.of(0, previous_step=3).reach(3, 0.9, ALL)
        [peer] = experiment.of(1).peers(3, ALL).ranked("maximize", 0, 10)
        assert (peer.number, peer.value) == (0, 0.5)

    def test_peers_are_the_others_of_the_pool_at_the_milestone(self, experiment: Experiment) -> None:
        for number, milestone, pool in ((0, 3, ALL), (1, 3, ALL), (2, 3, OTHER_POOL), (3, 9, ALL)):
            experiment.of(number).reach(milestone, 0.5, pool)
        assert experiment.of(0).peers(3, ALL).count() == 1
        assert experiment.of(4).peers(3, ALL).count() == 2
        assert experiment.of(0).peers(3, OTHER_POOL).count() == 1
        assert experiment.of(3).peers(9, ALL).count() == 0
        assert experiment.of(3).peers(27, ALL).ranked("maximize", 0, 10) == []

    @pytest.mark.parametrize("direction", ["minimize", "maximize"])
    def test_standings_and_ranks_are_those_of_the_sorted_values(
        self, experiment: Experiment, direction: Direction
    ) -> None:
        random = np.random.default_rng(0)
        values = {number: float(random.integers(0, 4)) for number in range(TRIALS)}  # with ties
        for number, value in values.items():
            experiment.of(number).reach(3, value, ALL)
        sign = 1 if direction == "minimize" else -1
        for own in (0, 5, TRIALS - 1):
            peers = experiment.of(own).peers(3, ALL)
            others = sorted(sign * value for number, value in values.items() if number != own)
            ranked = peers.ranked(direction, 0, TRIALS)
            assert [sign * one.value for one in ranked] == others
            assert {one.number: one.value for one in ranked} == {n: v for n, v in values.items() if n != own}
            for first, count in ((0, 3), (4, 2), (TRIALS - 3, 9), (TRIALS, 1)):
                assert list(peers.ranked(direction, first, count)) == list(ranked[first : first + count])
            for value in (-1.0, 0.0, 1.5, 3.0, 9.0):
                better = sum(one < sign * value for one in others)
                assert (peers.standing(value, direction).count, peers.standing(value, direction).better_count) == (
                    len(others),
                    better,
                )
                older = sum(values[n] == value for n in range(6) if n != own)
                assert peers.standing(value, direction, 6).better_count == better + older

    def test_a_curve_has_the_reported_values_by_step(self, experiment: Experiment) -> None:
        for step, value in ((1, 0.25), (4, 0.75), (9, 0.5)):
            experiment.report(0, step, value)
        experiment.report(1, 2, 0.125)
        assert experiment.of(0).curve() == {1: 0.25, 4: 0.75, 9: 0.5}
        assert experiment.of(0).curve(1) == experiment.of(1).curve() == {2: 0.125}
        assert experiment.of(0).best_value("maximize") == 0.75
        assert experiment.of(0).best_value("minimize") == 0.25

    @pytest.mark.parametrize("direction", ["minimize", "maximize"])
    def test_the_best_values_are_those_of_the_curve_by_step(self, experiment: Experiment, direction: Direction) -> None:
        """In whatever order the steps are reported."""
        random = np.random.default_rng(0)
        best, curve = max if direction == "maximize" else min, dict[int, float]()
        for step in random.permutation(40):
            curve[int(step)] = value = float(random.integers(0, 9)) / 8
            experiment.report(0, int(step), value)
            experiment.report(1, int(step), -value)
            values = [curve[one] for one in sorted(curve)]
            assert experiment.of(0).best_value(direction) == best(values)
            for count in (1, 3, 20, 10**30):
                since, before = values[-count:], values[:-count]
                found = experiment.of(0).best_since_and_before(count, direction)
                assert found == ((best(since), best(before)) if before else None)
        assert experiment.of(2).best_since_and_before(1, direction) is None

    @pytest.mark.parametrize(("rule", "at_end"), [("median", 0.5), ("wilcoxon", 0.375)])
    def test_a_completed_trial_moves_to_the_completed_ones_with_its_value_at_the_end(
        self, experiment: Experiment, rule: str, at_end: float
    ) -> None:
        for number in (0, 1):
            for step, value in ((1, 0.25), (4, 0.5)):
                experiment.report(number, step, value + number)
                experiment.of(number).reach(step, value + number, ALL)
        experiment.complete(0, TypeAdapter(EarlyStoppingSpec).validate_python({"rule": rule}))
        peers = experiment.of(2).peers
        assert [one.number for one in peers(4, ALL).ranked("maximize", 0, 10)] == [1]
        assert [(one.number, one.value) for one in peers(4, COMPLETED).ranked("maximize", 0, 10)] == [(0, 0.5)]
        assert [(one.number, one.value) for one in peers(AT_END, COMPLETED).ranked("maximize", 0, 10)] == [(0, at_end)]

    def test_a_trial_moves_at_milestones_that_it_has_not_reported_too(self, experiment: Experiment) -> None:
        """Such as those of a rung that lies between two reports."""
        rule: Rule = TypeAdapter(EarlyStoppingSpec).validate_python({"rule": "median"})
        for step in (12, 24):
            experiment.report(0, step, 0.5)
            experiment.of(0).reach(step // 10 * 10, 0.5, ALL)
        peers = experiment.of(1).peers
        for _ in range(2):
            experiment.complete(0, rule)
            assert [peers(milestone, COMPLETED).count() for milestone in (10, 20, AT_END)] == [1, 1, 1]
            assert [peers(milestone, ALL).count() for milestone in (10, 20, AT_END)] == [0, 0, 0]
            experiment.reopen(0, rule)
            assert [peers(milestone, COMPLETED).count() for milestone in (10, 20, AT_END)] == [0, 0, 0]
            assert [peers(milestone, ALL).count() for milestone in (10, 20)] == [1, 1]
