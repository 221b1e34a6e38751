"""Trials under a lease, and leases that run out."""

from datetime import timedelta
from typing import Any

from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.scheduling.assignment import Claimant
from service.operations.attempts.scheduling.next_trial import assign
from service.operations.experiments.creation import store_experiment
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.tables import AgentRow, AttemptRow, ExperimentRow, TrialRow
from tests.conftest import a_spec
from trainer.wire import (
    Answer,
    Assignment,
    Heartbeat,
)

LEASE_SECONDS = 300.0
"""So long that a pause of the test does not matter."""
OVER_A_LEASE = 1.1 * LEASE_SECONDS


def an_assignment(context: Context, **changes: Any) -> Assignment:
    experiment = store_experiment(context, parse_spec(a_spec(**changes)))
    assignment = assign(context, experiment.id, Claimant("a holder", experiment.id))
    assert assignment
    return assignment


def beat(context: Context, held: Assignment, running_seconds: float) -> Answer:
    return take_heartbeat(context, held.trial, held.lease.token, Heartbeat(running_seconds=running_seconds))


def let_pass(context: Context, seconds: float) -> None:
    """Move all that is stored into the past: the leases' clock is the database's, and cannot be set."""
    with context.database.write() as session:
        for attempt in session.query(AttemptRow).filter_by(ended_at=None):
            assert attempt.lease_expires_at
            attempt.lease_expires_at -= timedelta(seconds=seconds)
            attempt.started_at -= timedelta(seconds=seconds)
            for moment in ("began_at", "last_report_at"):
                at = getattr(attempt, moment)
                setattr(attempt, moment, at and at - timedelta(seconds=seconds))
        for agent in session.query(AgentRow).where(AgentRow.name_expires_at.is_not(None)):
            assert agent.name_expires_at
            agent.name_expires_at -= timedelta(seconds=seconds)
        for experiment in session.query(ExperimentRow):
            experiment.created_at -= timedelta(seconds=seconds)


def trial_of(context: Context, assignment: Assignment) -> TrialRow:
    with context.database.read() as session:
        return session.get_one(TrialRow, assignment.trial)
