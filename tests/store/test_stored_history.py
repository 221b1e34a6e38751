"""The history in SQL keeps the contract of a history, on both databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.early_stopping import EarlyStoppingSpec, MetricReport, Rule
from search.reported_numbers import number_in
from tests.conformance.history import HistoryConformance
from tests.store.stored_experiment import StoredExperiment, stored_experiment

NAMES = ("accuracy", 'précision "top-5" of a\\b.c')
"""SQLite's JSON paths do not find all names."""


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
