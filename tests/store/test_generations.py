"""Runs that MLflow has already stay those of their trials when trials come to have several."""

import pytest
from alembic import command
from sqlalchemy import inspect, text

from service.store.sql.database import Database
from service.store.sql.schema_upgrade import config

EXPERIMENT = """insert into experiments (id, name, spec, tags, status, priority, trial_count, event_count, created_at)
values ('x-1', 'e', '{}', '{}', 'running', 0, 1, 0, '2026-11-01')"""
TRIAL = """insert into trials (id, experiment_id, number, params, origin, status, killed, attempt_count,
changed_at_event, created_at) values ('t-1', 'x-1', 0, '{}', 'search', 'running', false, 1, 0, '2026-11-01')"""
RUN = "insert into mirror_runs (trial_id, experiment_id, run_id) values ('t-1', 'x-1', 'run-1')"
LATER = "insert into mirror_runs (trial_id, experiment_id, run_id, generation) values ('t-1', 'x-1', 'run-2', 1)"


@pytest.mark.slow
def test_the_upgrade_to_generations_keeps_each_trials_run(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0006")
        for statement in (EXPERIMENT, TRIAL, RUN):
            connection.execute(text(statement))
    with database.engine.begin() as connection:
        command.upgrade(config(connection), "head")
        key = inspect(connection).get_pk_constraint("mirror_runs")
        assert key["constrained_columns"] == ["trial_id", "generation"]
        connection.execute(text(LATER))
        runs = connection.execute(text("select generation, run_id from mirror_runs order by generation")).all()
        assert [tuple(run) for run in runs] == [(0, "run-1"), (1, "run-2")]
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0006")
        assert inspect(connection).get_pk_constraint("mirror_runs")["constrained_columns"] == ["trial_id"]
        assert connection.scalars(text("select run_id from mirror_runs")).all() == ["run-1"]
    database.close()
