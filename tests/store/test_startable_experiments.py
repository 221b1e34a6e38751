"""The two ways to say that an experiment may run trials agree: of its row, and in SQL."""

from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from typing import Any

from service.domain.end_reasons import EndReason
from service.domain.statuses import ExperimentStatus
from service.store.experiments import may_run_trials, startable_experiments
from service.store.sql.database import Database
from service.store.tables import ExperimentRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPECS: list[dict[str, Any]] = [{}, {"confirm": None}, {"confirm": {"top": 2}}]


def test_the_row_and_the_sql_agree(database_url: str) -> None:
    rows = [
        ExperimentRow(
            id=f"x-{number}", name=f"x-{number}", status=status, end_reason=reason, spec=spec, tags={}, created_at=NOW
        )
        for number, (status, reason, spec) in enumerate(product(ExperimentStatus, [None, *EndReason], SPECS))
    ]
    with closing(Database(database_url)) as database, database.write() as session:
        session.add_all(rows)
        session.flush()
        found = {one.id for one in startable_experiments(session)}
    wanted = {row.id for row in rows if row.status == ExperimentStatus.RUNNING and may_run_trials(row)}
    assert found == wanted
    assert 0 < len(wanted) < len(rows) / len(ExperimentStatus)
