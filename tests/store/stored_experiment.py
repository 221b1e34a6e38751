"""An experiment of running trials in SQL, whose history rules may look at."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from search.early_stopping import Rule
from search.early_stopping.plugin_rules import has_trait, value_at_end
from search.reported_numbers import number_in
from service.store.early_stopping.history import StoredHistory
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, ReportRow, TrialRow
from tests.conformance.history import TRIALS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StoredExperiment:
    """`metric` is the one that is judged; None means the first objective."""

    session: Session
    trials: list[TrialRow]
    metric: str | None = None

    def report(self, number: int, step: int, value: float) -> None:
        trial = self.trials[number]
        if self.metric is None:
            trial.value = value
        self.report_metrics(number, step, {"accuracy": 9.0, self.metric or "accuracy": value})

    def report_metrics(self, number: int, step: int, metrics: dict[str, Any]) -> None:
        trial = self.trials[number]
        trial.last_step = step
        value = number_in(metrics, "accuracy")
        row = {"attempt": 1, "sequence": step, "metrics": metrics, "value": value, "at": NOW}
        self.session.add(ReportRow(trial_id=trial.id, step=step, **row))

    def of(self, number: int, previous_step: int | None = None) -> StoredHistory:
        return StoredHistory(self.session, self.trials[number], self.metric, previous_step)

    def complete(self, number: int, rule: Rule) -> None:
        history = self.of(number)
        last = history.last_value()
        value = None if last is None else value_at_end(rule, last, history)
        if value is not None:
            history.complete(value, is_compared=has_trait(rule, "compares_completed"))

    def reopen(self, number: int, rule: Rule) -> None:
        StoredHistory(self.session, self.trials[number], self.metric).reopen(rule.pool_of(number))


@contextmanager
def stored_experiment(database_url: str, metric: str | None = None) -> Iterator[StoredExperiment]:
    with closing(Database(database_url)) as database, database.write() as session:
        facts = {"spec": {}, "tags": {}, "status": "running", "created_at": NOW}
        session.add(ExperimentRow(id="x-0", name="x-0", **facts))
        session.flush()
        trial = {"experiment_id": "x-0", "params": {}, "origin": "search", "status": "running", "created_at": NOW}
        trials = [TrialRow(id=f"t-{number}", number=number, **trial) for number in range(TRIALS)]
        session.add_all(trials)
        session.flush()
        yield StoredExperiment(session, trials, metric)
