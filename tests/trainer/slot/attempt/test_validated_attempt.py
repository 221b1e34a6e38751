"""An attempt whose checkpoints are validated: when its reports reach the service, and how validations end."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.conftest import set_constant, until
from tests.trainer.slot.attempt.played_attempt import SECONDS, Played, play, played
from trainer.slot.attempt.attempt_state import Killed, Preempted, State, Stopping
from trainer.slot.attempt.outcome import AttemptOutcome
from trainer.slot.checkpoints.validation_queue import Validations
from trainer.wire import Answer, Decision
from trainer.worker.failures import CANNOT_START, USER_ERROR, Failure
from trainer.worker.messages import RankReport, WorkerEnded
from trainer.worker.user_process import UserProcess

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

SPEC = {"entrypoint": "train:validate", "fn_kwargs": {"batch": 1, "fast": True}}
FAILED = Failure(USER_ERROR, "ValueError: no")
PROCESS = UserProcess("n", [], None)


def losses(one: Played) -> list[dict[str, Any]]:
    return [report.metrics for report in one.service.reports[one.trial]]


def scenario(tmp_path: Path, run: Callable[[Played], Coroutine[Any, Any, None]], **validation: Any) -> None:
    async def play_it() -> None:
        async with played(tmp_path, validation=SPEC | validation) as one:
            await run(one)

    play(play_it)


def test_reports_wait_for_the_validations_before_them_and_training_does_not(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        assert await one.report_for_validation(0, fn_kwargs={"batch": 2}) == "continue"
        assert await one.report(1) == "continue"
        assert await one.report_for_validation(2) == "continue"
        first = await one.validation(0)
        assert first.uri.endswith(f"{one.attempt.run_name}/c0")
        assert first.fn_kwargs == {"batch": 2, "fast": True}
        assert losses(one) == []
        assert {path: found[0] for path, found in (await one.attempt.validated(0)).items()} == {
            f"{one.attempt.run_name}/c{n}": "PENDING_VALIDATION" for n in (0, 2)
        }
        first.end(accuracy=0.5)
        second = await one.validation(1)  # one at a time
        await asyncio.to_thread(until, lambda: len(losses(one)) == 2, "two reports", SECONDS)
        assert losses(one) == [{"loss": 0.0, "accuracy": 0.5}, {"loss": 1.0}]
        await one.attempt.worker_ended(0, WorkerEnded())
        concluding = asyncio.create_task(one.conclude())
        assert second.fn_kwargs == {"batch": 1, "fast": True}
        second.end(loss=3.0, accuracy=0.75)
        assert await concluding == AttemptOutcome("completed", began=True)
        assert losses(one)[2:] == [{"loss": 3.0, "accuracy": 0.75}]
        assert [report.checkpoint is not None for report in one.service.reports[one.trial]] == [True, False, True]
        found = await one.attempt.validated(None)
        assert {status for status, _ in found.values()} == {"VALIDATED"}

    scenario(tmp_path, run)


def test_the_output_of_each_process_that_validates_follows_that_of_the_one_before(tmp_path: Path) -> None:
    """Ray repeats a validation whose process has died, here with a part of its output."""

    async def run(one: Played) -> None:
        one.service.expects_gaps = True
        for offset, text in ((0, "the first one\n"), (14 + 5, "without its middle\n")):
            one.attempt.logs.add(1, offset, text, {})
        second = one.attempt.validation_began("second", PROCESS)
        assert second == 14 + 5 + 19
        one.attempt.logs.add(1, second, "the second one\n", {})
        await one.attempt.worker_ended(0, WorkerEnded())
        await one.conclude()
        expected = "the first one\n[missing up to 19]without its middle\nthe second one\n"
        assert one.service.log(one.trial, rank=1) == expected

    scenario(tmp_path, run)


def test_a_repeated_start_of_a_validation_changes_nothing(tmp_path: Path) -> None:
    """Ray repeats a call whose connection broke: here the validation's own, and then an earlier one's."""

    async def run(one: Played) -> None:
        one.attempt.validation_began("first", UserProcess("dead", [], None))
        for _ in range(2):
            assert one.attempt.validation_began("second", PROCESS) == 0
        one.attempt.logs.add(1, 3, "b\n", {})  # before what it has printed earlier
        one.attempt.validation_began("first", UserProcess("dead", [], None))
        one.attempt.validation_began("second", PROCESS)
        one.attempt.logs.add(1, 0, "aa\n", {})
        await one.report_for_validation(0)
        await one.attempt.worker_ended(0, WorkerEnded())
        (await one.validation(0)).end(loss=1.0)
        await one.conclude()
        assert one.service.log(one.trial, rank=1) == "aa\nb\n"

    scenario(tmp_path, run)


def test_a_repeated_start_of_an_earlier_validation_does_not_replace_the_process_of_the_running_one(
    tmp_path: Path,
) -> None:
    async def run(one: Played) -> None:
        dead = UserProcess("dead", [], None)
        for sequence, process in enumerate((dead, PROCESS)):
            await one.report_for_validation(sequence)
            validation = await one.validation(sequence)
            one.attempt.validation_began(str(sequence), process)
            one.attempt.validation_began("0", dead)
            validation.end(accuracy=1.0)
        await one.attempt.worker_ended(0, WorkerEnded())
        await one.conclude()
        assert [one.process for one in one.validations] == [dead, PROCESS]

    scenario(tmp_path, run)


def test_the_log_of_a_validation_that_is_not_repeated_has_what_came_after_lost_output(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        one.service.expects_gaps = True
        await one.report_for_validation(0)
        validation = await one.validation(0)
        one.attempt.validation_began("first", PROCESS)
        one.attempt.logs.add(1, 5, "without its start\n", {})
        await one.attempt.worker_ended(0, WorkerEnded())
        concluding = asyncio.create_task(one.conclude())
        validation.end(FAILED)
        await concluding
        note = "[paceline: the checkpoint c0 is not validated: ValueError: no]\n"
        assert one.service.log(one.trial, rank=1) == f"[missing up to 5]without its start\n{note}"

    scenario(tmp_path, run)


@pytest.mark.parametrize(("order", "counts"), [(Killed, True), (Preempted, False)])
def test_an_attempt_that_is_ended_waits_for_no_validation(tmp_path: Path, order: type[State], counts: bool) -> None:
    """The report of a killed one counts; one that is given back is repeated, with its validation, elsewhere."""

    async def run(one: Played) -> None:
        assert await one.report(0) == "continue"
        assert await one.report_for_validation(1) == "continue"
        validation = await one.validation(0)
        one.attempt.end_now(order())
        await one.conclude()
        await asyncio.to_thread(until, lambda: validation.is_cancelled, "it is cancelled", SECONDS)
        assert losses(one) == [{"loss": 1.0}, *([{"loss": 1.0}] if counts else [])]

    scenario(tmp_path, run)


@pytest.mark.parametrize(("order", "count"), [(Killed, 2), (Preempted, 1)])
def test_a_report_on_its_way_to_be_validated_when_an_attempt_is_given_back_is_repeated_elsewhere(
    tmp_path: Path, order: type[State], count: int
) -> None:
    """The next attempt would resume from a checkpoint whose validation was lost. That of a killed one counts."""

    async def run(one: Played) -> None:
        assert await one.report(0) == "continue"
        await asyncio.to_thread(until, lambda: len(losses(one)) == 1, "a report", SECONDS)
        one.attempt.end_now(order())
        await one.report_for_validation(1)
        await one.conclude()
        assert len(losses(one)) == count

    scenario(tmp_path, run)


class InlineThread:
    """It has ended as soon as it is started."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:  # noqa: ARG002
        self.start = target


def test_a_report_is_sent_although_its_validation_ends_as_soon_as_it_can_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = SimpleNamespace(Thread=InlineThread, Condition=threading.Condition)
    set_constant(monkeypatch, Validations.hold, "threading", inline)

    async def run(one: Played) -> None:
        one.attempt.end_now(Killed())
        await one.report_for_validation(0)
        await asyncio.to_thread(until, lambda: losses(one) == [{"loss": 0.0}], "the report", SECONDS)

    scenario(tmp_path, run)


def test_a_late_stop_voids_the_validations_after_it(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        cut = Answer(decision=Decision.STOP, reason="slow", deciding_sequence=0)
        one.service.decide = lambda _trial, _report: cut
        for sequence in range(3):
            assert await one.report_for_validation(sequence) == "continue"
        (await one.validation(0)).end(accuracy=0.5)
        await asyncio.to_thread(until, lambda: len(losses(one)) == 3, "three reports", SECONDS)
        assert losses(one) == [{"loss": 0.0, "accuracy": 0.5}, {"loss": 1.0}, {"loss": 2.0}]
        assert all(validation.is_cancelled for validation in one.validations[1:])
        await one.attempt.worker_ended(0, WorkerEnded())
        assert await one.conclude() == AttemptOutcome("stopped", began=True)
        assert sorted(uri.rpartition("/")[2] for uri in one.removed) == ["c1", "c2"]

    scenario(tmp_path, run)


def test_reports_after_a_users_stop_count_and_are_validated(tmp_path: Path) -> None:
    """The function has reported on, or ended, before the answer to a report that was held says stop."""

    async def run(one: Played) -> None:
        one.service.decide = lambda _trial, _report: Answer(decision=Decision.STOP, reason="the user")
        for sequence in range(2):
            assert await one.report_for_validation(sequence) == "continue"
        await one.attempt.worker_ended(0, WorkerEnded())
        (await one.validation(0)).end(accuracy=0.5)
        concluding = asyncio.create_task(one.conclude())
        (await one.validation(1)).end(accuracy=0.75)
        assert await concluding == AttemptOutcome("completed", began=True)
        assert losses(one) == [{"loss": 0.0, "accuracy": 0.5}, {"loss": 1.0, "accuracy": 0.75}]

    scenario(tmp_path, run)


def test_a_user_who_stops_it_gets_the_validation_of_its_last_checkpoint(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        one.service.order(one.trial, Decision.STOP, "the user")
        await one.comes_to(Stopping)
        assert await one.report_for_validation(0) == "stop"
        await one.attempt.worker_ended(0, WorkerEnded(has_stopped=True))
        concluding = asyncio.create_task(one.conclude())
        (await one.validation(0)).end(accuracy=0.5)
        assert await concluding == AttemptOutcome("stopped", began=True)
        assert losses(one) == [{"loss": 0.0, "accuracy": 0.5}]

    scenario(tmp_path, run)


def test_only_an_attempt_of_which_every_validation_fails_fails(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        await one.report_for_validation(0)
        (await one.validation(0)).end(FAILED)
        await one.attempt.worker_ended(0, WorkerEnded())
        assert await one.conclude() == AttemptOutcome.failed(FAILED, began=True)
        assert losses(one) == [{"loss": 0.0}]

    async def run_two(one: Played) -> None:
        await one.report_for_validation(0)
        await one.report_for_validation(1)
        (await one.validation(0)).end(FAILED)
        (await one.validation(1)).end(accuracy=1)
        await one.attempt.worker_ended(0, WorkerEnded())
        assert await one.conclude() == AttemptOutcome("completed", began=True)
        log = one.service.log(one.trial, rank=1)
        assert log == f"[paceline: the checkpoint c0 is not validated: {FAILED.message}]\n", "nothing else says it"

    scenario(tmp_path, run)
    scenario(tmp_path, run_two)


def test_a_validation_has_a_time_limit_which_a_report_may_lift(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        await one.report_for_validation(0, timeout_s=None)
        await one.report_for_validation(1)
        (await one.validation(0)).end(accuracy=1)
        late = await one.validation(1)
        await asyncio.to_thread(until, lambda: late.is_cancelled, "its time is over", SECONDS)
        await asyncio.to_thread(until, lambda: len(losses(one)) == 2, "both reports", SECONDS)
        found = await one.attempt.validated(0)
        assert [status for status, _ in found.values()] == ["VALIDATED", "VALIDATION_TIMEOUT"]

    scenario(tmp_path, run, timeout_s=0.05)


def test_a_validation_that_cannot_be_started_holds_nothing_up(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        del one.validations  # so that the start raises
        await one.report_for_validation(0)
        await one.attempt.worker_ended(0, WorkerEnded())
        outcome = await one.conclude()
        assert outcome is not None
        assert outcome.failure is not None
        assert "the validation could not be run" in outcome.failure.message
        assert losses(one) == [{"loss": 0.0}]

    scenario(tmp_path, run)


def test_a_validation_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constant(monkeypatch, Validations.hold, "ROOM_SECONDS", 0.0)

    async def run(one: Played) -> None:
        await one.report_for_validation(0)
        await one.attempt.worker_ended(0, WorkerEnded())
        assert await one.conclude() == AttemptOutcome.failed(Failure(CANNOT_START, "no node has room"), began=True)

    scenario(tmp_path, run)


def test_a_checkpoint_that_was_never_saved_is_not_validated(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        assert await one.attempt.report(RankReport(0, 0, 1, {"loss": 0.0}, None, validation={})) == "continue"
        await one.attempt.worker_ended(0, WorkerEnded())
        assert await one.conclude() == AttemptOutcome("completed", began=True)
        assert losses(one) == [{"loss": 0.0}]
        assert one.validations == []

    scenario(tmp_path, run)


def test_a_report_that_comes_after_the_training_is_not_held_for_good() -> None:
    ended: queue.Queue[int] = queue.Queue()
    validations = Validations(SPEC, lambda *_: None, lambda sequence, _: ended.put(sequence), lambda _: None)  # type: ignore[arg-type]
    for sequence in (0, 1):
        validations.ask(sequence, {})
    validations.hold(0)
    validations.training_is_over()
    assert ended.get(timeout=SECONDS) == 0
    until(lambda: validations._thread is None, "the thread has ended")
    assert validations.is_to_hold(1)
    validations.hold(1)
    assert ended.get(timeout=SECONDS) == 1


def test_a_wait_for_validations_is_over_when_none_is_pending_or_the_workers_are_ended(tmp_path: Path) -> None:
    async def run(one: Played) -> None:
        await one.report_for_validation(0)
        waiting = asyncio.create_task(one.attempt.validated(None))
        validation = await one.validation(0)
        assert not waiting.done()
        validation.end(accuracy=1)
        assert [status for status, _ in (await waiting).values()] == ["VALIDATED"]
        await one.report_for_validation(1)
        waiting = asyncio.create_task(one.attempt.validated(None))
        await one.validation(1)
        assert not waiting.done()
        one.attempt.end_now(Killed())
        await waiting

    scenario(tmp_path, run)


def test_a_wait_for_validations_is_over_with_the_workers_while_a_validation_does_not_react_to_its_cancellation(
    tmp_path: Path,
) -> None:
    async def run(one: Played) -> None:
        await one.report_for_validation(0)
        validation = await one.validation(0)
        validation.reacts_to_cancel.clear()
        try:
            waiting = asyncio.create_task(one.attempt.validated(None))
            await asyncio.sleep(0)  # it begins to wait
            assert not waiting.done()
            one.attempt.end_now(Killed())
            async with asyncio.timeout(SECONDS):
                assert [status for status, _ in (await waiting).values()] == ["PENDING_VALIDATION"]
        finally:
            validation.reacts_to_cancel.set()

    scenario(tmp_path, run)
