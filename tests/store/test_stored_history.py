"""The history in SQL keeps the contract of a history, on both databases."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.early_stopping import EarlyStoppingSpec, MetricReport, Rule
from search.reported_numbers import number_in
from service.store.early_stopping.history import StoredHistory
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, ReportRow, TrialRow
from tests.conformance.history import TRIALS, HistoryConformance

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("accuracy", 'précision "top-5" of a\\b.c')
"""SQLite's JSON paths do not find all names."""


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
        StoredHistory(self.session, self.trials[number], self.metric).complete(rule)


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


class TestStoredHistory(HistoryConformance):
    @pytest.fixture
    def experiment(self, database_url: str) -> Iterator[StoredExperiment]:
        with stored_experiment(database_url) as experiment:
            yield experiment


class TestStoredHistoryOfAnotherMetric(HistoryConformance):
    @pytest.fixture(params=NAMES)
    def experiment(self, database_url: str, request: pytest.FixtureRequest) -> Iterator[StoredExperiment]:
        with stored_experiment(database_url, request.param) as experiment:
            yield experiment


REPORTED = [0.1 + 0.2, "NaN", 5, "0.75", None, True, "NaN", 10**17, [3], "1e-3", "18446744073709551616", "text", {}, -1]
"""Values as reports have them: what JSON lacks is stored as text."""


@pytest.mark.parametrize("metric", NAMES)
def test_values_are_the_numbers_that_a_report_may_have(database_url: str, metric: str) -> None:
    with stored_experiment(database_url, metric) as experiment:
        experiment.report_metrics(0, 0, {"another": 1.0})
        for step, value in enumerate(REPORTED, 1):
            experiment.report_metrics(0, step, {"another": 100.0, metric: value})
        numbers = {step: number_in({metric: value}, metric) for step, value in enumerate(REPORTED, 1)}
        curve = {step: value for step, value in numbers.items() if value is not None}
        history, values = experiment.of(0), list(curve.values())
        assert history.curve() == curve
        assert (history.best_value("minimize"), history.best_value("maximize")) == (min(values), max(values))
        for count in range(1, len(values)):
            expected = max(values[-count:]), max(values[:-count])
            assert history.best_since_and_before(count, "maximize") == expected
        assert history.best_since_and_before(len(values), "maximize") is None


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("metric", [None, NAMES[1]])
@pytest.mark.parametrize(
    "options",
    [
        {"rule": "median", "n_startup_trials": 1},
        {"rule": "patient", "patience": 3},
        {"rule": "patient", "patience": 3, "wrapped_rule": {"rule": "asha"}},
    ],
    ids=str,
)
def test_a_judged_report_reads_few_rows_however_long_its_curve_is(
    database_url: str, metric: str | None, options: dict[str, Any]
) -> None:
    rule: Rule = TypeAdapter(EarlyStoppingSpec).validate_python(options)
    last = 243  # a rung
    with stored_experiment(database_url, metric) as experiment:
        for number in (0, 1):
            for step in range(last + 1):
                experiment.report(number, step, -float(step + number))
        experiment.of(0).reach(last, -float(last), rule.pool_of(0))
        experiment.complete(0, rule)
        report = MetricReport(1, metric or "accuracy", "maximize", last, -float(last + 1), last - 1)
        with counted_rows(experiment.session) as rows:
            verdicts = list(rule.decide(report, experiment.of(1, last - 1)))
        assert verdicts[-1].milestone == last
        assert len(rows) < last / 5


@contextmanager
def counted_rows(session: Session) -> Iterator[list[object]]:
    """The rows that are read from SQLite."""
    driver: Any = session.connection().connection.driver_connection
    rows: list[object] = []

    def note(_cursor: object, row: object) -> object:
        rows.append(row)
        return row

    driver.row_factory = note
    yield rows
    driver.row_factory = None
