"""The paused trials in SQL keep the contract of paused trials, on both databases."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from search.early_stopping import PausedTrials
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.history import ALL
from search.problem import Direction
from service.domain.statuses import TrialStatus
from service.store.early_stopping.paused_trials import StoredPausedTrials
from service.store.tables import TrialRow
from tests.conformance.paused_trials import SPACE, PausedTrialsConformance
from tests.store.stored_experiment import StoredExperiment, stored_experiment


@dataclass(frozen=True)
class StoredPausingExperiment:
    """The rows as the service leaves them when early stopping has paused a trial, and when it continues."""

    stored: StoredExperiment

    def pause(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        self.reach(number, milestone, value, pool)
        self._set(number, TrialStatus.PAUSED, milestone, value, pool)

    def reach(self, number: int, milestone: int, value: float, pool: int = ALL) -> None:
        self.stored.of(number).reach(milestone, value, pool)

    def resume(self, number: int) -> None:
        self._set(number, TrialStatus.QUEUED, None, None, self.stored.trials[number].paused_pool)

    def paused(self, direction: Direction) -> PausedTrials:
        metric = ComparedMetric("accuracy", direction)
        return StoredPausedTrials(self.stored.session, "x-0", metric, SPACE, 0, more_to_come=False)

    def _set(self, number: int, status: TrialStatus, milestone: int | None, value: float | None, pool: int) -> None:
        trial: TrialRow = self.stored.trials[number]
        trial.status, trial.paused_milestone, trial.paused_value, trial.paused_pool = status, milestone, value, pool
        self.stored.session.flush()


class TestStoredPausedTrials(PausedTrialsConformance):
    @pytest.fixture
    def experiment(self, database_url: str) -> Iterator[StoredPausingExperiment]:
        with stored_experiment(database_url) as stored:
            yield StoredPausingExperiment(stored)
