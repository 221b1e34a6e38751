"""Which trials may be the best: said of a row, and in SQL by conditions on the status that suit different indexes."""

from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.best_trials import best_trials
from service.store.trials.eligible_for_best import eligible_for_best, is_eligible_for_best
from service.store.trials.ended_trials import best_end_before

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = list(product(TrialStatus, [None, 0.0, 0.1], [None, 0.5], [None, 7]))
"""Status, violation, value, and the number of the trial that it confirms. Each has an experiment of its own."""


def stored_experiments(session: Session, *, constrained: bool) -> list[ExperimentRow]:
    spec: dict[str, Any] = {
        "objectives": [{"metric": "loss", "direction": "minimize"}],
        "constraints": [{"metric": "size", "max": 1}] if constrained else [],
    }
    facts: dict[str, Any] = {"spec": spec, "tags": {}, "status": "running", "created_at": NOW}
    experiments = [ExperimentRow(id=f"x-{number}", name=f"x-{number}", **facts) for number in range(len(ENDS))]
    session.add_all(experiments)
    session.flush()
    for experiment, (status, violation, value, confirms) in zip(experiments, ENDS, strict=True):
        row: dict[str, Any] = {"number": 0, "params": {}, "origin": "search", "changed_at_event": 1, "created_at": NOW}
        end = {"status": status, "violation": violation, "value": value, "confirms": confirms}
        session.add(TrialRow(id=experiment.id, experiment_id=experiment.id, **row, **end))
    session.flush()
    return experiments


def by_conditions(session: Session, _experiments: list[ExperimentRow], *, constrained: bool) -> set[str]:
    return set(session.scalars(select(TrialRow.id).where(*eligible_for_best(constrained=constrained))))


def by_best_of_each_status(session: Session, experiments: list[ExperimentRow], *, constrained: bool) -> set[str]:
    return set(best_trials(session, experiments))


def by_best_end(session: Session, experiments: list[ExperimentRow], *, constrained: bool) -> set[str]:
    ids = [experiment.id for experiment in experiments]
    return {one for one in ids if best_end_before(session, one, 2, "minimize", constrained=constrained)}


@pytest.mark.parametrize("constrained", [False, True])
def test_the_row_and_the_sql_agree(database_url: str, constrained: bool) -> None:
    expected = {
        f"x-{number}"
        for number, (status, violation, value, confirms) in enumerate(ENDS)
        if is_eligible_for_best(status, violation, constrained=constrained) and value is not None and confirms is None
    }
    assert len(expected) == (2 if constrained else 6), "completed and stopped ones"
    with closing(Database(database_url)) as database, database.write() as session:
        experiments = stored_experiments(session, constrained=constrained)
        for found in (by_conditions, by_best_of_each_status, by_best_end):
            assert found(session, experiments, constrained=constrained) == expected, found.__name__
