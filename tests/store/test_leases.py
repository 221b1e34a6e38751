"""Claims, reports, losses, ends and cancels in any order: only the holder of the living lease can change the trial."""

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from service.domain.statuses import LIVE_TRIAL, TRIAL_MOVES, TrialStatus
from service.domain.token_digest import token_digest
from service.errors import LeaseLost
from service.operations.agents.lost_attempts import end_lost_attempts
from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.lease_expiry import expire_leases, extend_all_leases
from service.operations.attempts.scheduling.assignment import Claimant
from service.operations.attempts.scheduling.next_trial import assign
from service.operations.experiments.creation import store_experiment
from service.operations.experiments.lifecycle import cancel, pause, resume
from service.operations.trials.stop import stop_trial
from service.runtime.context import Context
from service.settings import Settings
from service.specification.parser import parse_spec
from service.store.attempts import attempt_by_token
from service.store.sql.database import Database
from service.store.tables import AttemptRow, CheckpointRow, EventRow, ExperimentRow, ReportRow, TrialRow
from tests.conftest import a_spec, changed
from tests.store.calls import take_reports
from trainer.wire import Assignment, Decision, Failure, FailureKind, Finish, LostAttempt, Outcome, Report

MAX_TRIALS, PARALLELISM = 4, 2


class Leases(RuleBasedStateMachine):
    """`living` is the model: which token holds which trial."""

    held = Bundle("held")
    fresh_context: Callable[[], Context]

    def __init__(self) -> None:
        super().__init__()
        self.context = type(self).fresh_context()
        self.living: dict[str, str] = {}
        self.finished: set[str] = set()
        self.saved: set[str] = set()
        self.sequences: Counter[str] = Counter()
        self.requests = 0

    @initialize(promote=st.booleans())
    def submit(self, promote: bool) -> None:
        limits = {"max_trials": MAX_TRIALS, "parallelism": PARALLELISM}
        rule_ = {"rule": "asha", "reduction_factor": 2, "promote": promote}
        spec = a_spec(limits=limits, early_stopping=rule_, failures={"max_retries": 1})
        self.experiment = store_experiment(self.context, parse_spec(spec)).id

    def teardown(self) -> None:
        self.context.close()

    @rule(target=held)
    def claim(self) -> Assignment:
        self.requests += 1
        assignment = assign(self.context, self.experiment, Claimant("a holder", f"request {self.requests}"))
        if assignment is None:
            return multiple()  # type: ignore[return-value]
        assert assignment.trial not in self.living.values()
        self.living[assignment.lease.token] = assignment.trial
        return assignment

    @rule(assignment=held, value=st.floats(0, 1))
    def report(self, assignment: Assignment, value: float) -> None:
        token = assignment.lease.token
        report = Report(sequence=self.sequences[token], metrics={"accuracy": value}, checkpoint=f"/{token}")
        self._believed_only_if_living(token, lambda: take_reports(self.context, assignment.trial, token, [report]))
        self.sequences[token] += 1
        if token in self.living:
            self.saved.add(f"/{token}")

    @rule(assignment=held)
    def beat(self, assignment: Assignment) -> None:
        token = assignment.lease.token
        self._believed_only_if_living(token, lambda: take_heartbeat(self.context, assignment.trial, token))

    @rule(assignment=held, outcome=st.sampled_from(list(Outcome)))
    def finish(self, assignment: Assignment, outcome: Outcome) -> None:
        token = assignment.lease.token
        error = Failure(kind=FailureKind.USER_ERROR, message="no") if outcome is Outcome.FAILED else None
        message = Finish(outcome=outcome, error=error)
        if token in self.finished:
            return  # a holder's repeated finish is answered, which another test covers
        self._believed_only_if_living(token, lambda: finish(self.context, assignment.trial, token, message))
        if token in self.living:
            self.finished.add(token)
            del self.living[token]

    @rule(target=held, assignment=held, times=st.integers(1, 2))
    def finish_and_go_on(self, assignment: Assignment, times: int) -> Assignment:
        """A slot that asks for its next trial, and repeats the call if the answer may be lost."""
        token = assignment.lease.token
        if token not in self.living:
            return multiple()  # type: ignore[return-value]
        message = Finish(outcome=Outcome.COMPLETED, next=True)
        answers = [finish(self.context, assignment.trial, token, message).next for _ in range(times)]
        self.finished.add(token)
        del self.living[token]
        following = answers[0]
        assert {answer and answer.lease.token for answer in answers} == {following and following.lease.token}
        if following is None:
            return multiple()  # type: ignore[return-value]
        self.living[following.lease.token] = following.trial
        return following

    @rule(value=st.floats(0, 1))
    def run_as_told(self, value: float) -> None:
        """A trial whose holder leaves when asked to, and completes after a few steps."""
        self.requests += 1
        assignment = assign(self.context, self.experiment, Claimant("a holder", f"request {self.requests}"))
        if assignment is None:
            return
        token, outcome = assignment.lease.token, Outcome.COMPLETED
        for sequence in range(5):
            report = Report(sequence=sequence, metrics={"accuracy": value}, checkpoint=f"/{token}/{sequence}")
            answer = take_reports(self.context, assignment.trial, token, [report])
            self.saved.add(f"/{token}/{sequence}")
            if answer.decision is Decision.STOP:
                outcome = Outcome.STOPPED
                break
        finish(self.context, assignment.trial, token, Finish(outcome=outcome))

    @rule(assignment=held)
    def lose(self, assignment: Assignment) -> None:
        token = assignment.lease.token
        with self.context.database.write() as session:
            row = attempt_by_token(session, token)
            assert row
            if row.lease_expires_at is not None:  # otherwise it has ended before
                row.lease_expires_at -= timedelta(days=1)
        assert expire_leases(self.context) == (token in self.living)
        self.living.pop(token, None)

    @rule(assignment=held, agent=st.sampled_from(["a holder", "another"]))
    def give_up(self, assignment: Assignment, agent: str) -> None:
        end_lost_attempts(self.context, agent, [LostAttempt(trial=assignment.trial, attempt=assignment.attempt)])
        if agent == "a holder":
            self.living.pop(assignment.lease.token, None)

    @rule()
    def a_service_starts(self) -> None:
        extend_all_leases(self.context)

    @rule(assignment=held)
    def stop_one(self, assignment: Assignment) -> None:
        stop_trial(self.context, assignment.trial)

    @rule(chance=st.integers(0, 9))
    def cancel(self, chance: int) -> None:
        if chance == 0:
            cancel(self.context, self.experiment)

    @rule()
    def pause_and_resume(self) -> None:
        with self.context.database.read() as session:
            over = session.get_one(ExperimentRow, self.experiment).ended_at is not None
        if not over:
            pause(self.context, self.experiment)
            assert assign(self.context, self.experiment, Claimant("a holder", "while paused")) is None
            resume(self.context, self.experiment)

    @invariant()
    def the_database_agrees_with_the_model(self) -> None:
        with self.context.database.read() as session:
            living = {row.lease_digest: row.trial_id for row in session.query(AttemptRow).filter_by(ended_at=None)}
            trials = session.query(TrialRow).all()
            experiment = session.query(ExperimentRow).one()
            events = session.scalars(select(EventRow).order_by(EventRow.seq)).all()
            steps = session.query(ReportRow.trial_id, ReportRow.step).all()
            checkpoints = set(session.scalars(select(CheckpointRow.uri)))
        assert living == {token_digest(token): trial for token, trial in self.living.items()}
        assert checkpoints <= self.saved
        assert len(living) <= PARALLELISM
        assert len(trials) <= MAX_TRIALS
        assert {trial.id for trial in trials if trial.status == "running"} == set(living.values())
        assert [event.seq for event in events] == list(range(1, experiment.event_count + 1))
        stored = Counter((event.trial_id, event.data["step"]) for event in events if event.kind == "report")
        assert stored == Counter(tuple(step) for step in steps)
        assert not (experiment.ended_at and any(trial.status in LIVE_TRIAL for trial in trials))
        self._no_trial_waits_in_vain(experiment, trials)
        for trial in trials:
            self._moved_as_the_map_says([event for event in events if event.trial_id == trial.id])

    @staticmethod
    def _no_trial_waits_in_vain(experiment: ExperimentRow, trials: list[TrialRow]) -> None:
        places = {trial.id for trial in trials if trial.paused_milestone is not None}
        waiting = {trial.id for trial in trials if trial.status == "paused"}
        assert waiting <= places <= waiting | {trial.id for trial in trials if trial.stop_cause is not None}
        going_on = any(trial.status in {"queued", "running"} for trial in trials)
        assert experiment.ended_at or going_on or len(trials) < MAX_TRIALS

    @staticmethod
    def _moved_as_the_map_says(events: list[EventRow]) -> None:
        statuses = {f"trial.{status}": status for status in TrialStatus}
        path = [TrialStatus.QUEUED, *(statuses[event.kind] for event in events if event.kind in statuses)]
        assert all(after in TRIAL_MOVES[before] for before, after in itertools.pairwise(path))

    def _believed_only_if_living(self, token: str, call: Callable[[], object]) -> None:
        if token in self.living:
            call()
        else:
            with pytest.raises(LeaseLost):
                call()


@pytest.mark.slow
def test_only_the_holder_of_the_living_lease_can_change_a_trial(settings: Settings) -> None:
    def fresh() -> Context:
        context = Context(changed(settings, lease_seconds=3600), Database(settings.database_url))
        with context.database.write() as session:
            session.query(ExperimentRow).delete()
        return context

    machine = type("Machine", (Leases,), {"fresh_context": staticmethod(fresh)})
    some = hypothesis.settings(
        max_examples=20,
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.generate],  # without the shrinking phase, which takes minutes
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    run_state_machine_as_test(machine, settings=some)
