"""What the first whole trials have shown at the rungs of a training, without their whole curves."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, event

from search.early_stopping.training_facts import Training, concordance
from service.operations.attempts.finish import finish
from service.operations.attempts.scheduling.claim import ask
from service.operations.experiments.creation import store_experiment
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.early_stopping.training_facts import with_ranks
from tests.conftest import a_spec
from tests.store.calls import take_reports
from trainer.wire import Finish, Outcome, Report

TRAINING = Training(number=0, report_count=27, last_step=27, first_step=1)
CURVES = (
    {1: 0.4, 3: 0.1, 9: 0.3, 27: 0.1},
    {2: 0.3, 4: 0.4, 9: 0.2, 30: 0.2},
    {1: 0.2, 5: 0.2, 8: 0.1},
    {1: 0.1, 3: 0.3, 10: 0.4, 20: 0.4},
)
"""Values by step: some have no report at a rung, and some are shorter."""


@pytest.fixture
def experiment_id(context: Context) -> str:
    experiment = store_experiment(context, parse_spec(a_spec(limits={"max_trials": 9, "parallelism": 4})))
    for curve in CURVES:
        held = ask(context, experiment.name, None)
        assert held
        values = {**curve, max(curve) + 1: None}
        metrics = [{"loss": 1.0} if value is None else {"accuracy": value} for value in values.values()]
        reports = [Report(sequence=at, step=step, metrics=metrics[at]) for at, step in enumerate(values)]
        take_reports(context, held.trial, held.lease.token, reports)
        finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.COMPLETED))
    return experiment.id


@pytest.fixture
def fetched(context: Context) -> Iterator[list[str]]:
    """Statements that read reports."""
    statements: list[str] = []

    def note(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "FROM reports" in statement:
            statements.append(statement)

    event.listen(context.database.engine, "before_cursor_execute", note)
    yield statements
    event.remove(context.database.engine, "before_cursor_execute", note)


def test_trials_are_compared_at_their_first_values_from_a_rung_on(
    context: Context, experiment_id: str, fetched: list[str]
) -> None:
    ends = [[*curve.values()][-1] for curve in CURVES]
    expected = {}
    for rung in TRAINING.rungs:
        early = [next((v for step, v in curve.items() if step >= rung), [*curve.values()][-1]) for curve in CURVES]
        expected[str(rung)] = round(concordance(early, ends), 3)
    with context.database.read() as session:
        found = with_ranks(session, experiment_id, TRAINING)
    assert found.trial_count == len(CURVES)
    assert found.concordances == expected
    assert fetched
    assert all("LIMIT" in statement for statement in fetched)
