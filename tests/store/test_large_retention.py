"""Retention of an experiment with many checkpoints: reports wait for its transactions."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from sqlalchemy import func, select

from service.operations.checkpoints.retention_removal import REMOVED_AT_ONCE, remove_unneeded
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import CheckpointDeletionRow
from tests.store.many_trials import experiment_with_trials
from tests.store.recorded_statements import recorded

pytestmark = pytest.mark.slow

RULE = {"keep_best_trials": 5}


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    context = Context(settings, Database(settings.database_url))
    yield context
    context.close()


def orders_of(context: Context) -> int:
    """The number of directories that agents are to delete."""
    with context.database.read() as session:
        return session.scalar(select(func.count()).select_from(CheckpointDeletionRow)) or 0


def test_the_number_of_queries_does_not_depend_on_how_many_checkpoints_are_removed(context: Context) -> None:
    counts = []
    for trial_count in (10, 200):
        experiment = experiment_with_trials(context, trial_count, checkpoints=RULE)
        with recorded(context.database.engine) as queries:
            remove_unneeded(context, experiment)
        counts.append(len(queries))
    assert orders_of(context) == 10 + 200 - 2 * 5
    assert counts[0] == counts[1]


@pytest.mark.databases("sqlite")
@pytest.mark.timeout(60)
def test_the_checkpoints_of_20_000_trials_are_removed_in_small_transactions(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, sizes = experiment_with_trials(context, 20_000, checkpoints=RULE), [0]
    monkeypatch.setattr(context.new_events, "notify", lambda: sizes.append(orders_of(context)))
    while remove_unneeded(context, experiment):
        pass
    assert sizes[-1] == 20_000 - 5
    assert max(after - before for before, after in pairwise(sizes)) <= REMOVED_AT_ONCE
