"""The paused trials in memory keep the contract of paused trials."""

from dataclasses import dataclass, field

import pytest

from search.early_stopping import InMemoryHistory, PausedTrials
from search.early_stopping.history import ALL
from search.early_stopping.in_memory_paused_trials import InMemoryPausedTrials
from search.problem import Direction
from tests.conformance.paused_trials import SPACE, PausedTrialsConformance


@dataclass
class InMemoryExperiment:
    paused_trials: InMemoryPausedTrials = field(
        default_factory=lambda: InMemoryPausedTrials(InMemoryHistory(), "accuracy", "maximize", SPACE)
    )

    def pause(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        self.reach(number, milestone, value, pool)
        self.paused_trials.pause(number, milestone, value, pool)

    def reach(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        self.paused_trials.history.reach(number, milestone, value, pool)

    def resume(self, number: int) -> None:
        self.paused_trials.resume(number)

    def paused(self, direction: Direction) -> PausedTrials:
        self.paused_trials.direction = direction
        return self.paused_trials


class TestInMemoryPausedTrials(PausedTrialsConformance):
    @pytest.fixture
    def experiment(self) -> InMemoryExperiment:
        return InMemoryExperiment()
