"""A stopping rule that the service chooses takes over what was reported, without a lock while all reports are read."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from service.background.time_limits import TimeLimits
from service.errors import Unavailable
from service.operations.attempts import heartbeat
from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import keep_ending
from service.operations.early_stopping.recorded_milestones import (
    MAX_LOCKED_EVENTS,
    CaughtUpMilestones,
    MilestonesMissing,
    RecordedMilestones,
    catch_up,
)
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.locked_experiment import lock_named
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, MilestoneRow
from tests.api.early_stopping.chosen_rules import LIMITS, STEPS, STOPPING, chosen, created, ran, rule, takes
from tests.api.early_stopping.promotion import given, patched
from tests.conftest import Api, Held, running
from tests.history_reads import Reads, counted_reads
from tests.timeouts import PATIENCE_SECONDS, wait_until
from trainer.wire import Answer

pytestmark = pytest.mark.slow

LENGTH = MAX_LOCKED_EVENTS + 200
CATCH_UP = "service.api.attempts.finish_wait.catch_up"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return counted_reads(monkeypatch)


@pytest.fixture
def any_history_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of a few reports, too, if nothing of it is known yet."""
    monkeypatch.setattr(RecordedMilestones, "is_behind", lambda known, *_: known.last_event == 0)


def reported(held: Held, length: int = LENGTH) -> Held:
    """Trials with a higher number are better at each step."""
    number = held.assignment["number"]
    for first in range(0, length, 600):
        steps = range(first, min(first + 600, length))
        points = [
            {
                "sequence": held.sequence + at,
                "step": held.sequence + at + 1,
                "metrics": {"accuracy": number + at / length},
            }
            for at in steps
        ]
        held.call("reports", body={"reports": points})
    held.sequence += length
    return held


def milestones(service: Api) -> list[tuple[int, int, float, int]]:
    columns = MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool
    with service.app.state.context.database.read() as session:
        return sorted((number, at, value, pool) for number, at, value, pool in session.execute(select(*columns)))


def rebuilt(service: Api, name: str) -> list[tuple[int, int, float, int]]:
    """What all reports give anew."""
    with pytest.MonkeyPatch.context() as patch, service.app.state.context.database.write() as session:
        patch.setattr(RecordedMilestones, "is_behind", lambda *_: False)
        locked = lock_named(session, name)
        rebuild_milestones(locked, spec_of(locked.experiment))
    return milestones(service)


def test_the_reports_before_a_choice_are_read_without_the_lock(service: Api, reads: Reads) -> None:
    name = created(service)["name"]
    reported(given(service, name)).finish()
    assert rule(service, name)["max_step"] == LENGTH
    assert reads.unlocked >= LENGTH
    assert reads.locked < MAX_LOCKED_EVENTS
    assert len(milestones(service)) == 4  # three rungs and the end


def test_the_reports_before_a_choice_for_changed_limits_are_read_without_the_lock(service: Api, reads: Reads) -> None:
    name = created(service, limits=LIMITS | {"max_trials": 9})["name"]
    reported(given(service, name)).finish()
    patched(service, name, limits={"max_trials": 40})
    assert rule(service, name)["max_step"] == LENGTH
    assert reads.unlocked >= LENGTH
    assert reads.locked < MAX_LOCKED_EVENTS


@pytest.mark.usefixtures("any_history_is_long")
def test_what_happens_while_the_history_is_read_counts(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports, another whole trial, and a new trial."""
    name = created(service, limits=LIMITS | {"parallelism": 3})["name"]
    held = [given(service, name) for _ in range(3)]
    for one, value in zip(held, (0.3, 0.1, 0.2), strict=True):
        for _ in range(STEPS - 1):
            one.report(accuracy=value)
    for one in held[:2]:
        one.report(accuracy=0.5)
        one.finish()
    held.append(given(service, name))
    between: list[Callable[[], object]] = [lambda: held[3].report(accuracy=0.7), lambda: given(service, name)]

    def read_slowly(context: Context, missing: MilestonesMissing) -> None:
        catch_up(context, missing)
        while between:
            between.pop()()

    monkeypatch.setattr(CATCH_UP, read_slowly)
    held[2].report(accuracy=0.6)
    held[2].finish()
    assert rule(service, name) == STOPPING
    found = milestones(service)
    assert (3, 1, 0.7, found[-1][3]) == found[-1]
    assert rebuilt(service, name) == found
    assert [event["kind"] for event in service.events(name)].count("attempt.ended") == 3


def test_reports_that_come_faster_than_they_are_read_do_not_keep_the_end_waiting(
    service: Api, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = created(service, limits=LIMITS | {"parallelism": 2})["name"]
    ran(given(service, name))
    ending, running_on = reported(given(service, name)), given(service, name)
    rounds = []

    def read_slowly(context: Context, missing: MilestonesMissing) -> None:
        catch_up(context, missing)
        rounds.append(missing)
        assert len(rounds) < 5, "without end"
        reported(running_on, LENGTH)

    monkeypatch.setattr(CATCH_UP, read_slowly)
    ending.finish()
    assert rule(service, name)["rule"] == "hyperband"
    assert LENGTH <= reads.locked < 2 * LENGTH
    found = milestones(service)
    assert rebuilt(service, name) == found


@pytest.mark.usefixtures("any_history_is_long")
def test_a_service_that_dies_while_it_reads_leaves_the_end_and_the_choice_to_another_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(settings, lease_seconds=3600)
    with running(settings) as service:
        undisturbed = created(service)["name"]
        ran(given(service, undisturbed))
        before, expected = milestones(service), chosen(service, undisturbed)
        name = created(service)["name"]
        held = given(service, name)
        for _ in range(STEPS):
            held.report(accuracy=0.5)
        takes(held, 1.0)
        events = service.events(name)

        def die(*_: Any) -> None:
            raise Unavailable("the outcome of the call is unknown")

        with monkeypatch.context() as dying:
            dying.setattr(RecordedMilestones, "catch_up", die)
            held.finish(status=503)
        assert service.events(name) == events, "nothing is stored"
    with running(settings) as another:
        held = replace(held, api=another)
        answer = held.finish()
        assert answer["status"] == "completed"
        assert held.finish() == answer
        assert rule(another, name) == STOPPING
        assert chosen(another, name) == expected
        assert milestones(another) == sorted([*before, *before])


@pytest.mark.usefixtures("any_history_is_long")
def test_a_service_that_stops_does_not_read_on(service: Api) -> None:
    name = created(service)["name"]
    held = given(service, name)
    for _ in range(STEPS):
        held.report(accuracy=0.5)
    service.app.state.context.stopping.set()
    assert "the service stops" in held.finish(status=503)["detail"]
    assert held.shown()["status"] == "running"
    assert rule(service, name) == {"rule": "auto"}


@pytest.mark.usefixtures("any_history_is_long")
def test_services_that_read_the_same_history_choose_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(settings, lease_seconds=3600)
    with running(settings) as first, running(settings) as second:
        name = created(first, limits=LIMITS | {"parallelism": 2})["name"]
        ran(given(first, name), value=0.3)
        slow, fast = given(first, name), given(second, name)
        for held in (slow, fast):
            for _ in range(STEPS):
                held.report(accuracy=0.5)

        unused: list[MilestonesMissing] = []

        def read_slowly(context: Context, missing: MilestonesMissing) -> None:
            catch_up(context, missing)
            if context is first.app.state.context:
                unused.append(missing)
                fast.finish()
                assert rule(second, name) == STOPPING

        monkeypatch.setattr(CATCH_UP, read_slowly)
        assert slow.finish()["status"] == "completed"
        kept = first.app.state.context.database.process_caches.of(CaughtUpMilestones)
        assert [kept.take(one.experiment_id, one.spec).last_event for one in unused] == [0], "its memory is free again"
        assert rule(first, name) == STOPPING
        rules = [one["early_stopping"]["options"]["rule"] for one in chosen(first, name)]
        assert rules == ["auto", "auto", "hyperband"]
        found = milestones(first)
        assert {number for number, *_ in found} == {0, 1, 2}
        assert rebuilt(second, name) == found


class _Gate:
    """Lets the first catch-up read on when the test says so, and the others when it is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        monkeypatch.setattr(CATCH_UP, self._catch_up)

    def _catch_up(self, context: Context, missing: MilestonesMissing) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE_SECONDS)
        catch_up(context, missing)


def test_trials_that_end_together_read_the_history_once_and_keep_no_other_call_waiting(
    service: Api, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More ends than threads for ends, claims and logs."""
    name, other = created(service, limits=LIMITS | {"parallelism": 13})["name"], created(service)["name"]
    held = [given(service, name) for _ in range(13)]
    for one in held:
        reported(one, 120)
    for one in held[:3]:
        one.finish()
    assert rule(service, name) == {"rule": "auto"}
    gate = _Gate(monkeypatch)
    with ThreadPoolExecutor(len(held)) as threads:
        ends = [threads.submit(one.finish) for one in held[3:]]
        assert gate.reached.wait(PATIENCE_SECONDS)
        given(service, other).report(accuracy=0.5)
        assert rule(service, name) == {"rule": "auto"}
        gate.opened.set()
        assert [end.result()["status"] for end in ends] == ["completed"] * len(ends)
    assert rule(service, name)["max_step"] == 120
    assert reads.unlocked < 2 * 13 * 120
    assert reads.locked < MAX_LOCKED_EVENTS
    found = milestones(service)
    assert rebuilt(service, name) == found


@pytest.mark.usefixtures("any_history_is_long")
def test_an_end_whose_turn_comes_after_the_choice_does_not_read_the_history_again(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another end has read the history and chosen the rule between the transaction of this one and its turn."""
    name = created(service, limits=LIMITS | {"parallelism": 13})["name"]
    *whole, fast, slow = [given(service, name) for _ in range(5)]
    for one in (*whole, fast, slow):
        reported(one, STEPS)
    for one in whole:
        one.finish()
    has_missed, is_chosen, readings = threading.Event(), threading.Event(), list[MilestonesMissing]()

    def finish_slowly(context: Context, trial: str, *arguments: Any) -> Any:
        try:
            return finish(context, trial, *arguments)
        except MilestonesMissing:
            if trial == slow.trial and not has_missed.is_set():
                has_missed.set()
                assert is_chosen.wait(PATIENCE_SECONDS)
            raise

    def read(context: Context, missing: MilestonesMissing) -> None:
        readings.append(missing)
        catch_up(context, missing)

    monkeypatch.setattr("service.api.attempts.finish_wait.finish", finish_slowly)
    monkeypatch.setattr(CATCH_UP, read)
    with ThreadPoolExecutor(1) as threads:
        end = threads.submit(slow.finish)
        assert has_missed.wait(PATIENCE_SECONDS)
        fast.finish()
        is_chosen.set()
        assert end.result()["status"] == "completed"
    assert len(readings) == 1


@pytest.mark.usefixtures("any_history_is_long")
def test_an_attempt_is_kept_while_the_end_that_its_holder_has_sent_waits(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder sends neither heartbeats nor reports any more, but may repeat the call."""
    name, gate = created(service)["name"], _Gate(monkeypatch)
    held = given(service, name)
    for _ in range(STEPS):
        held.report(accuracy=0.5)
    database = service.app.state.context.database
    own = select(AttemptRow).where(AttemptRow.trial_id == held.trial)
    monkeypatch.setattr("service.api.attempts.finish_wait.KEEP_SECONDS", 0)
    with database.read() as session:
        short = database_now(session) + timedelta(seconds=PATIENCE_SECONDS)
        early = database_now(session) - timedelta(seconds=PATIENCE_SECONDS)

    def neglect() -> None:
        with database.write() as session:
            attempt = session.scalars(own).one()
            attempt.lease_expires_at, attempt.last_report_at = short, early

    def is_kept() -> bool:
        with database.read() as session:
            attempt = session.scalars(own).one()
            assert attempt.ended_at is None
            assert attempt.lease_expires_at
            assert attempt.last_report_at
            return bool(attempt.lease_expires_at > short and attempt.last_report_at > early)

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(held.finish, next=True) for _ in range(2)]
        for _ in range(3):
            neglect()
            wait_until(is_kept)
        gate.opened.set()
        answer, repeated = (end.result() for end in ends)
    assert answer == repeated
    assert (answer["status"], answer["next"]["number"]) == ("completed", 1)


@pytest.mark.usefixtures("any_history_is_long")
def test_an_attempt_that_cannot_be_kept_for_a_moment_ends_all_the_same(
    service: Api, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, gate = created(service)["name"], _Gate(monkeypatch)
    held = given(service, name)
    for _ in range(STEPS):
        held.report(accuracy=0.5)
    failed = threading.Event()

    def fail_once(*arguments: Any, **options: Any) -> Answer:
        if not failed.is_set():
            assert gate.reached.wait(PATIENCE_SECONDS)
            failed.set()
            raise OperationalError("update attempts", {}, OSError("the disk is full"))
        gate.opened.set()
        return keep_lease(*arguments, **options)

    keep_lease = heartbeat._keep_lease
    monkeypatch.setattr(heartbeat, "_keep_lease", fail_once)
    monkeypatch.setattr("service.api.attempts.finish_wait.KEEP_SECONDS", 0)
    assert held.finish()["status"] == "completed"
    assert rule(service, name) == STOPPING
    assert reads.unlocked < 3 * STEPS, "read once"


@pytest.mark.usefixtures("any_history_is_long")
def test_a_waiting_end_is_no_silence_where_reports_are_to_come_often(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept again before `report_timeout_seconds`, however long leases are."""
    monkeypatch.setattr(TimeLimits, "run_once", lambda _: 0)  # on a busy machine, it would come first
    monkeypatch.setattr("service.api.attempts.finish_wait.KEEP_SECONDS", 3600)
    gate, kept = _Gate(monkeypatch), []

    def keep(*arguments: Any) -> None:
        keep_ending(*arguments)
        kept.append(arguments)
        if len(kept) == 3:
            gate.opened.set()

    monkeypatch.setattr("service.api.attempts.finish_wait.keep_ending", keep)
    name = created(service, failures={"report_timeout_seconds": 0.3})["name"]
    held = given(service, name)
    for _ in range(STEPS):
        held.report(accuracy=0.5)
    assert held.finish()["status"] == "completed"
    assert rule(service, name) == STOPPING
