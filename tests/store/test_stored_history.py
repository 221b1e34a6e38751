"""The history in SQL keeps the contract of a history, on both databases."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from sqlalchemy.orm import Session

from search.early_stopping import History, Rule
from service.store.early_stopping.history import StoredHistory
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, ReportRow, TrialRow
from tests.conformance.history import TRIALS, HistoryConformance

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StoredExperiment:
    session: Session
    trials: list[TrialRow]

    def report(self, number: int, step: int, value: float) -> None:
        trial = self.trials[number]
        trial.value, trial.last_step = value, step
        row = {"attempt": 1, "sequence": step, "metrics": {"accuracy": value}, "value": value, "at": NOW}
        self.session.add(ReportRow(trial_id=trial.id, step=step, **row))

    def of(self, number: int, previous_step: int | None = None) -> History:
        return StoredHistory(self.session, self.trials[number], previous_step=previous_step)

    def complete(self, number: int, rule: Rule) -> None:
        StoredHistory(self.session, self.trials[number]).complete(rule)


class TestStoredHistory(HistoryConformance):
    @pytest.fixture
    def experiment(self, database_url: str) -> Iterator[StoredExperiment]:
        database = Database(database_url)
        with database.write() as session:
            facts = {"spec": {}, "tags": {}, "status": "running", "created_at": NOW}
            session.add(ExperimentRow(id="x-0", name="x-0", **facts))
            session.flush()
            trial = {"experiment_id": "x-0", "params": {}, "origin": "search", "status": "running", "created_at": NOW}
            trials = [TrialRow(id=f"t-{number}", number=number, **trial) for number in range(TRIALS)]
            session.add_all(trials)
            session.flush()
            yield StoredExperiment(session, trials)
        database.close()
