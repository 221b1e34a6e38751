"""Confirmations under any order of ends, failures, losses and crashes, with two services at work."""

from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from service.operations.agents.lost_attempts import end_lost_attempts
from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.scheduling.assignment import Claimant
from service.operations.attempts.scheduling.next_trial import assign
from service.operations.experiments.creation import store_experiment
from service.operations.experiments.lifecycle import pause, resume
from service.operations.time_limits import enforce_time_limits
from service.runtime.context import Context
from service.settings import Settings
from service.specification.parser import parse_spec
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.best_trials import best_trial
from tests.conftest import a_spec, changed, examples
from tests.store.calls import take_reports
from trainer.wire import Assignment, Decision, Failure, FailureKind, Finish, LostAttempt, Outcome, Report

pytestmark = pytest.mark.slow

MAX_TRIALS, TOP, SEEDS = 9, 2, 2
MAX_SEARCH_TRIALS = MAX_TRIALS - TOP * SEEDS
SPEC: dict[str, Any] = {
    "limits": {"max_trials": MAX_TRIALS, "parallelism": 3},
    "confirm": {"top": TOP, "seeds": SEEDS},
    "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
}
ENDS = ("complete", "complete", "complete", "fail", "diverge", "lose", "leave")


@dataclass
class Run:
    """Two services and a holder, who act at random until the experiment has ended."""

    settings: Settings
    random: Random
    services: list[Context] = field(default_factory=list)
    held: list[Assignment] = field(default_factory=list)
    requests: int = 0

    def run(self) -> tuple[ExperimentRow, list[TrialRow]]:
        self.services = [self.start(), self.start()]
        with self.service.database.write() as session:
            session.query(ExperimentRow).delete()
        self.experiment = store_experiment(self.service, parse_spec(a_spec(**SPEC))).id
        while not self.has_ended():
            self.random.choice([self.claim, self.claim, self.end_one, self.end_one, self.crash, self.pause])()
        found = self.stored()
        for context in self.services:
            context.close()
        return found

    def start(self) -> Context:
        return Context(changed(self.settings, lease_seconds=3600), Database(self.settings.database_url))

    @property
    def service(self) -> Context:
        return self.random.choice(self.services)

    def claim(self) -> None:
        self.requests += 1
        claimant = Claimant("a holder", f"request {self.requests}")
        if (assignment := assign(self.service, self.experiment, claimant)) is not None:
            self.held.append(assignment)

    def end_one(self) -> None:
        if not self.held:
            return
        one = self.held.pop(self.random.randrange(len(self.held)))
        end, token = self.random.choice(ENDS), one.lease.token
        value = float("nan") if end == "diverge" else self.random.random()
        take_reports(self.service, one.trial, token, [Report(sequence=0, metrics={"accuracy": value})])
        if end == "lose":
            end_lost_attempts(self.service, "a holder", [LostAttempt(trial=one.trial, attempt=one.attempt)])
            return
        error = Failure(kind=FailureKind.OUT_OF_MEMORY, message="no") if end == "fail" else None
        outcome = {"fail": Outcome.FAILED, "leave": Outcome.STOPPED}.get(end, Outcome.COMPLETED)
        finish(self.service, one.trial, token, Finish(outcome=outcome, error=error))

    def crash(self) -> None:
        """A service is gone, and another one starts with nothing but what is stored."""
        self.services.pop(self.random.randrange(2)).close()
        self.services.append(self.start())

    def pause(self) -> None:
        pause(self.service, self.experiment)
        resume(self.service, self.experiment)

    def has_ended(self) -> bool:
        experiment, trials = self.stored()
        assert len(trials) <= MAX_TRIALS
        assert sum(trial.confirms is None for trial in trials) <= MAX_SEARCH_TRIALS
        return experiment.ended_at is not None

    def stored(self) -> tuple[ExperimentRow, list[TrialRow]]:
        with self.service.database.read() as session:
            return session.query(ExperimentRow).one(), session.query(TrialRow).order_by(TrialRow.number).all()


def winners(trials: list[TrialRow]) -> list[int]:
    contenders = [one for one in trials if one.confirms is None and one.status in {"completed", "stopped"}]
    ranked = sorted((-one.value, one.number) for one in contenders if one.value is not None)
    return [number for _, number in ranked[:TOP]]


def test_each_winner_is_confirmed_with_each_seed_whatever_happens(settings: Settings) -> None:
    @examples(6)
    @given(st.integers(0, 10**9))
    def check(seed: int) -> None:
        experiment, trials = Run(settings, Random(seed)).run()  # noqa: S311
        expected = {(number, seed) for number in winners(trials) for seed in range(1, SEEDS + 1)}
        found = [(one.confirms, one.seed) for one in trials if one.confirms is not None]
        assert len(found) == len(set(found))
        assert set(found) == expected
        assert not any(one.status == "pruned" for one in trials if one.confirms is not None)
        params = {one.number: one.params for one in trials}
        assert all(one.params == params[one.confirms] for one in trials if one.confirms is not None)
        assert experiment.end_reason in {"max_trials", "too_many_failures"}

    check()


def test_a_trial_is_confirmed_once_with_each_seed(settings: Settings) -> None:
    context = Context(settings, Database(settings.database_url))
    experiment = store_experiment(context, parse_spec(a_spec(**SPEC))).id
    facts = {"experiment_id": experiment, "params": {}, "origin": "confirm", "status": "queued", "confirms": 1}

    def add(number: int) -> None:
        with context.database.write() as session:
            now = session.get_one(ExperimentRow, experiment).created_at
            session.add(TrialRow(id=f"t-{number}", number=number, seed=1, created_at=now, **facts))

    add(8)
    with pytest.raises(IntegrityError):
        add(9)
    context.close()


def test_the_experiments_time_limit_ends_its_confirmations(settings: Settings) -> None:
    context = Context(settings, Database(settings.database_url))
    limits = {"max_trials": 3, "parallelism": 3, "max_seconds": 3600}
    spec = {"limits": limits, "confirm": {"top": 1, "seeds": 2}}
    experiment = store_experiment(context, parse_spec(a_spec(**spec))).id
    searched = claimed(context, experiment)
    report = Report(sequence=0, metrics={"accuracy": 0.5})
    take_reports(context, searched.trial, searched.lease.token, [report])
    finish(context, searched.trial, searched.lease.token, Finish(outcome=Outcome.COMPLETED))
    confirmation = claimed(context, experiment)
    with context.database.write() as session:
        session.get_one(ExperimentRow, experiment).created_at -= timedelta(hours=2)
    enforce_time_limits(context)
    order = take_heartbeat(context, confirmation.trial, confirmation.lease.token)
    assert order.decision is Decision.STOP
    finish(context, confirmation.trial, confirmation.lease.token, Finish(outcome=Outcome.STOPPED))
    with context.database.read() as session:
        row = session.get_one(ExperimentRow, experiment)
        assert (row.status, row.end_reason) == ("completed", "max_seconds")
        assert [one.status for one in session.query(TrialRow).order_by(TrialRow.number)][1:] == ["stopped", "stopped"]
        best = best_trial(session, row)
    assert best
    assert best.number == 0
    context.close()


def claimed(context: Context, experiment: str) -> Assignment:
    assignment = assign(context, experiment, Claimant("a holder", uuid4().hex))
    assert assignment
    return assignment


def test_the_best_is_that_of_the_search_while_confirmations_run(settings: Settings) -> None:
    context = Context(settings, Database(settings.database_url))
    experiment = store_experiment(context, parse_spec(a_spec(**SPEC | {"early_stopping": {"rule": "none"}}))).id
    for request in range(MAX_TRIALS):
        assignment = assign(context, experiment, Claimant("a holder", str(request)))
        assert assignment
        value = assignment.number / 10 if request < MAX_SEARCH_TRIALS else 1 / assignment.number
        take_reports(
            context, assignment.trial, assignment.lease.token, [Report(sequence=0, metrics={"accuracy": value})]
        )
        with context.database.read() as session:
            best = best_trial(session, session.get_one(ExperimentRow, experiment))
        assert best is None or best.number == min(request, MAX_SEARCH_TRIALS) - 1
        finish(context, assignment.trial, assignment.lease.token, Finish(outcome=Outcome.COMPLETED))
    with context.database.read() as session:
        best = best_trial(session, session.get_one(ExperimentRow, experiment))
    assert best
    assert best.number == MAX_SEARCH_TRIALS - 1
    context.close()
