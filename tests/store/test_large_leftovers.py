"""What ended experiments have left: all agents ask for it every few seconds."""

from collections.abc import Iterator

import pytest

from service.operations.agents.lost_attempts import attempts_of_agent
from service.operations.checkpoints.obsolete_checkpoints import ObsoleteFiles, obsolete_files
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database, database_now
from service.store.tables import CheckpointRow, ExperimentRow
from tests.store.many_trials import ENDED_AGO, experiment_with_trials
from tests.store.recorded_statements import recorded
from trainer.wire import HeldAttempts

pytestmark = pytest.mark.slow


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    context = Context(settings, Database(settings.database_url))
    yield context
    context.close()


def ended_experiment(context: Context, trial_count: int, failed_count: int) -> str:
    """Returns its id. The first trials have failed."""
    id_ = experiment_with_trials(
        context, trial_count, lambda number: "failed" if number < failed_count else "completed"
    )
    with context.database.write() as session:
        experiment = session.get_one(ExperimentRow, id_)
        experiment.status, experiment.ended_at = "completed", experiment.created_at - ENDED_AGO / 2
    return id_


def asked(context: Context) -> HeldAttempts:
    return attempts_of_agent(context, "here")


def test_agents_ask_for_nothing_of_an_ended_experiment_that_has_not_changed(context: Context) -> None:
    experiment = ended_experiment(context, 8, 3)
    first = asked(context)
    assert len(first.partly_needed) == 3
    with recorded(context.database.engine) as queries:
        assert asked(context) == first
    assert not [one for one, _ in queries if "FROM checkpoints" in one or "FROM trials" in one or "generations" in one]
    with context.database.write() as session:
        row = session.query(CheckpointRow).filter_by(uri=f"{first.partly_needed[0].directory}/checkpoint_9").one()
        row.removed_at, row.removed_why = row.at, "retention"
        session.get_one(ExperimentRow, experiment).event_count += 1
    changed = asked(context)
    assert changed.obsolete == [first.partly_needed[0].directory]
    assert changed.partly_needed == first.partly_needed[1:]
    with context.database.write() as session:
        session.get_one(ExperimentRow, experiment).status = "running"
    assert not asked(context).obsolete


def test_no_folder_is_listed_while_its_checkpoints_are_known_in_another_storage(context: Context) -> None:
    ended_experiment(context, 3, 2)
    with context.database.read() as session:
        left = obsolete_files(session, "/elsewhere", database_now(session))
    assert left == ObsoleteFiles([], [])


@pytest.mark.databases("sqlite")
@pytest.mark.timeout(60)
def test_what_20_000_failed_trials_have_left_is_listed(context: Context) -> None:
    ended_experiment(context, 25_000, 20_000)
    for _ in range(3):
        assert len(asked(context).partly_needed) == 20_000
