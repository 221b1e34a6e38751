"""The contract of `search.early_stopping.PausedTrials`, for each implementation to inherit."""

from typing import Protocol

import pytest

from search.early_stopping import PausedTrial, PausedTrials
from search.early_stopping.history import ALL
from search.problem import Direction
from search.space.space import Space

OTHER_POOL = 1
SPACE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})


class PausingExperiment(Protocol):
    """An experiment of running trials, numbered from 0, which an implementation records."""

    def pause(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        """Record that the trial has reached the milestone with the value, and is paused there."""

    def reach(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        """Record that the trial has reached the milestone and goes on."""

    def resume(self, number: int) -> None:
        """Record that the paused trial goes on."""

    def paused(self, direction: Direction) -> PausedTrials:
        """What a rule may look at now."""


class PausedTrialsConformance:
    """Inherit in a test module, with a fixture `experiment`."""

    def test_milestones_are_those_where_trials_are_paused_in_ascending_order(
        self, experiment: PausingExperiment
    ) -> None:
        assert list(experiment.paused("maximize").milestones()) == []
        for number, milestone, pool in ((0, 9, ALL), (1, 1, ALL), (2, 9, OTHER_POOL), (3, 3, ALL)):
            experiment.pause(number, milestone, 0.5, pool)
        experiment.reach(4, 27, 0.5)
        assert list(experiment.paused("maximize").milestones()) == [1, 3, 9]
        experiment.resume(1)
        experiment.resume(0)
        assert list(experiment.paused("maximize").milestones()) == [3, 9]

    @pytest.mark.parametrize(("direction", "best"), [("maximize", 0.75), ("minimize", 0.25)])
    def test_the_best_is_of_the_pool_and_the_oldest_of_those_that_tie(
        self, experiment: PausingExperiment, direction: Direction, best: float
    ) -> None:
        for number, value in ((5, 0.75), (2, 0.75), (3, 0.25), (4, 0.25), (1, 0.5)):
            experiment.pause(number, 3, value)
        experiment.pause(0, 3, 0.0 if direction == "minimize" else 1.0, OTHER_POOL)
        experiment.reach(6, 3, 0.0 if direction == "minimize" else 1.0)
        found = experiment.paused(direction).best(3, ALL)
        assert found is not None
        assert (found.number, found.value) == (2 if direction == "maximize" else 3, best)
        experiment.resume(found.number)
        following = experiment.paused(direction).best(3, ALL)
        assert following is not None
        assert (following.number, following.value) == (5 if direction == "maximize" else 4, best)

    def test_there_is_no_best_where_no_trial_is_paused(self, experiment: PausingExperiment) -> None:
        experiment.pause(0, 3, 0.5)
        experiment.reach(1, 9, 0.5)
        paused = experiment.paused("maximize")
        assert (paused.best(3, OTHER_POOL), paused.best(9, ALL), paused.best(1, ALL)) == (None, None, None)
        experiment.resume(0)
        assert experiment.paused("maximize").best(3, ALL) is None

    def test_members_are_the_trials_of_all_pools_that_are_paused_there_by_number(
        self, experiment: PausingExperiment
    ) -> None:
        for number, pool in ((7, ALL), (0, OTHER_POOL), (3, ALL)):
            experiment.pause(number, 3, number / 8, pool)
        experiment.pause(1, 9, 0.5)
        experiment.reach(2, 3, 0.5)
        members = experiment.paused("maximize").members(3)
        assert list(members) == [PausedTrial(number, number / 8, {}, None) for number in (0, 3, 7)]

    def test_peers_are_the_trials_of_the_pool_that_have_reached_the_milestone(
        self, experiment: PausingExperiment
    ) -> None:
        experiment.pause(0, 3, 0.5)
        experiment.reach(1, 3, 0.75)
        experiment.pause(2, 3, 1.0, OTHER_POOL)
        experiment.pause(3, 9, 1.0)
        peers = experiment.paused("maximize").peers(3, ALL)
        assert [(one.number, one.value) for one in peers.ranked("maximize", 0, 9)] == [(1, 0.75), (0, 0.5)]
