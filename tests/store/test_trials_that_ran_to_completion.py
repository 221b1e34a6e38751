"""The three ways to say that a trial ran to completion agree: of its row, in SQL, and of the event of its end."""

from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from typing import Any

from sqlalchemy import select

from search.analysis.replay import Completion
from service.domain.statuses import LIVE_TRIAL, StopCause, TrialStatus
from service.operations.early_stopping.replay_events import StopRequests, replay_events
from service.store.events import EventOfKind
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.ended_trials import have_run_to_completion, ran_to_completion

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = list(product(TrialStatus, [None, *StopCause], [None, 0.5]))


def trial(number: int, status: TrialStatus, cause: StopCause | None, value: float | None) -> TrialRow:
    row: dict[str, Any] = {"experiment_id": "x-0", "params": {}, "origin": "search", "created_at": NOW}
    return TrialRow(id=f"t-{number}", number=number, status=status, stop_cause=cause, value=value, **row)


def test_the_row_and_the_sql_agree(database_url: str) -> None:
    trials = [trial(number, *end) for number, end in enumerate(ENDS)]
    with closing(Database(database_url)) as database, database.write() as session:
        facts = {"spec": {}, "tags": {}, "status": "running", "created_at": NOW}
        session.add(ExperimentRow(id="x-0", name="x-0", **facts))
        session.flush()
        session.add_all(trials)
        session.flush()
        found = set(session.scalars(select(TrialRow.number).where(have_run_to_completion())))
        assert found == {one.number for one in trials if ran_to_completion(one)}
        assert 0 < len(found) < len(ENDS)


def test_the_row_and_the_event_agree() -> None:
    final = [end for end in ENDS if end[0] not in LIVE_TRIAL]
    for number, (status, cause, value) in enumerate(final):
        event = EventOfKind(1, f"trial.{status}", "t", {"cause": cause, "values": [value]})
        completed = Completion(number) in list(replay_events([event], {"t": number}, "accuracy", StopRequests()))
        assert completed is ran_to_completion(trial(number, status, cause, value)), (status, cause, value)
