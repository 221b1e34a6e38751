"""One attempt against a service, with the test in the place of the workers: its end, losses, drains, resizes."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError

from tests.trainer.conftest import set_constant, until
from tests.trainer.slot.attempt.played_attempt import (
    SECONDS,
    STARTED,
    play,
    played,
)
from trainer.client.errors import ServiceUnreachable
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.attempt_state import Abandoned, Killed, LeaseLost, Preempted, Refused
from trainer.slot.attempt.outcome import AttemptOutcome
from trainer.slot.attempt.ranks import Remains
from trainer.worker.failures import LOST, PREEMPTED, USER_ERROR, Failure
from trainer.worker.messages import RankReport, WorkerEnded

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray


def test_a_function_that_returns_completes_its_trial(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            assert await one.report(0) == "continue"
            await one.attempt.worker_ended(0, WorkerEnded())
            assert one.runner.is_ending
            outcome = await one.conclude()
            assert outcome == AttemptOutcome("completed", began=True)
            await one.finish(outcome)
            assert one.service.finishes[one.trial].outcome == "completed"
            assert one.attempt.why_workers_not_reusable() is None
            assert one.runner.ended_count == 0

    play(run)


class DeadActor:
    """The handle of a worker whose process was killed."""

    @property
    def __ray_ready__(self) -> Any:
        return self

    async def remote(self) -> None:
        raise RayActorError


def test_a_rank_that_was_killed_before_it_told_that_it_starts_is_a_loss(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            one.runner.group = {0: STARTED.actor, 1: DeadActor()}
            failure = Failure(USER_ERROR, "Connection closed by peer", "Traceback")
            await one.attempt.worker_ended(0, WorkerEnded(failure=failure))
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == LOST
            died = "the worker of rank 1 died, after which another failed"
            assert outcome.failure.message == f"{died}: Connection closed by peer"

    play(run)


class MortalActor:
    """The handle of a worker that dies when the test says so."""

    is_dead = False

    @property
    def __ray_ready__(self) -> Any:
        return self

    async def remote(self) -> None:
        if self.is_dead:
            raise RayActorError


@pytest.mark.parametrize("in_background", [False, True])
def test_a_repeated_failure_does_not_count_ranks_that_were_ended_after_it(tmp_path: Path, in_background: bool) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            other = MortalActor()
            one.attempt.worker_started(0, replace(STARTED, actor=MortalActor()))
            one.attempt.worker_started(1, replace(STARTED, actor=other))
            failure = Failure(USER_ERROR, "ValueError: no", "Traceback")
            for _ in range(2):
                if in_background:
                    await one.attempt.worker_failed(0, failure)
                else:
                    await one.attempt.worker_ended(0, WorkerEnded(failure=failure))
                other.is_dead = True
            assert one.attempt.ranks.dead == set()
            assert one.attempt.ranks.failures == {0: failure}

    play(run)


@pytest.mark.parametrize("begins_in_background", [False, True])
def test_a_later_failure_does_not_count_ranks_that_were_ended_after_the_first(
    tmp_path: Path, begins_in_background: bool
) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 3}) as one:
            others = [MortalActor(), MortalActor()]
            one.attempt.worker_started(0, replace(STARTED, actor=MortalActor()))
            for rank, actor in enumerate(others, 1):
                one.attempt.worker_started(rank, replace(STARTED, actor=actor))
            failure = Failure(USER_ERROR, "ValueError: no", "Traceback")
            if begins_in_background:
                await one.attempt.worker_failed(0, failure)
                others[1].is_dead = True
            await one.attempt.worker_ended(0, WorkerEnded(failure=failure))
            others[1].is_dead = True
            await one.attempt.worker_ended(1, WorkerEnded(failure=failure))
            assert one.attempt.ranks.dead == set()
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == USER_ERROR

    play(run)


def test_a_repeated_end_counts_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            one.attempt.worker_started(1, STARTED)
            for _ in range(2):
                await one.attempt.worker_ended(0, WorkerEnded())
            assert not one.runner.is_ending
            await one.attempt.worker_ended(1, WorkerEnded())
            assert one.runner.is_ending
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.status == "completed"

    play(run)


def test_a_report_and_a_saved_checkpoint_that_are_told_again_reach_the_service_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            path = f"{one.attempt.run_name}/c0"
            first = RankReport(0, 0, 1, {"loss": 1.0}, None, {"data": 1.0}, {})
            answers = [await one.attempt.report(first) for _ in range(2)]
            for _ in range(2):
                one.attempt.checkpoint_saved(0, path)
            answers.append(await one.attempt.report(RankReport(1, 0, 1, {"loss": 0.5}, None, {"data": 2.0}, {})))
            answers.append(await one.attempt.report(first))
            assert answers == ["continue"] * 4
            assert one.attempt.ranks.times[0] == {"data": 2.0}
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.finished()
            sent = [(report.sequence, report.checkpoint is not None) for report in one.service.reports[one.trial]]
            assert sorted(set(sent)) == [(0, False), (0, True), (1, False)]
            assert len(sent) == 3

    play(run)


@pytest.mark.parametrize("is_away", [False, True])
def test_the_service_knows_that_no_report_is_to_come_while_the_slot_asks_a_silent_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_away: bool
) -> None:
    """A heartbeat tells it if the service was away at first. Later ones, while it delivers, do not tell it again."""

    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}, lease_seconds=0.3) as one:
            await one.report(0)
            one.attempt.ranks.add_ended(0, WorkerEnded(failure=Failure(USER_ERROR, "a collective timed out")))
            one.attempt.worker_started(1, STARTED)
            if is_away:
                monkeypatch.setattr(one.attempt.delivery.client, "post", away)
            told = one.service.endings[one.trial]
            assert not any(told)

            def read(_rank: int) -> Remains:
                one.attempt.delivery.tell_ending()
                one.service.wait_for(lambda: any(told))
                return "", None, None

            one.service.takes_logs.clear()
            one.attempt.logs.add(0, 0, "it takes a while to deliver this", {})
            concluding = asyncio.create_task(asyncio.to_thread(one.attempt.conclude, None, read))
            await asyncio.to_thread(one.service.wait_for, lambda: any(told) and not told[-1])
            one.service.takes_logs.set()
            outcome = await concluding
            assert outcome is not None
            assert outcome.failure is not None

    def away(*_: Any, **__: Any) -> None:
        raise ServiceUnreachable("away")

    play(run)


def test_no_call_tells_that_an_attempt_is_ending_whose_dead_workers_node_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as after any failure of one rank, since the others are killed then: the service may be slow to answer."""
    calls: list[str] = []

    async def run() -> None:
        async with played(tmp_path) as one:
            monkeypatch.setattr(one.attempt.delivery.client, "post", lambda path, _body, **_: calls.append(path))
            assert await one.conclude() is not None

    play(run)
    assert calls == []


def test_several_nodes_that_do_not_answer_make_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def run() -> None:
        async with played(tmp_path) as one:
            monkeypatch.setattr(one.attempt.delivery.client, "post", lambda path, _body, **_: calls.append(path))
            await asyncio.gather(*(asyncio.to_thread(one.attempt.delivery.tell_ending) for _ in range(3)))

    play(run)
    assert len(calls) == 1


def test_an_attempt_whose_ranks_have_all_told_their_ends_has_nothing_to_find_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.report(0)
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.finished()
            assert not any(one.service.endings[one.trial])

    play(run)


def test_its_end_waits_until_a_slow_service_has_all_of_its_output(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.takes_logs.clear()
            one.attempt.logs.add(0, 0, "the first half, ", {})
            one.attempt.logs.add(0, 16, 300_000 * "x", {})
            await one.attempt.worker_ended(0, WorkerEnded())
            concluding = asyncio.create_task(one.conclude())
            await asyncio.wait([concluding], timeout=0.5)
            assert not concluding.done()
            one.service.takes_logs.set()
            assert await concluding == AttemptOutcome("completed", began=True)
            assert one.service.log(one.trial) == "the first half, " + 300_000 * "x"

    play(run)


def test_its_ranks_wait_with_more_output_than_the_service_takes(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.logs.room()
            one.service.takes_logs.clear()
            one.attempt.logs.add(0, 0, 3_000_000 * "x", {})
            waiting = asyncio.create_task(one.attempt.logs.room())
            await asyncio.wait([waiting], timeout=0.2)
            assert not waiting.done()
            one.service.takes_logs.set()
            await waiting

    play(run)


def test_a_lost_lease_ends_the_workers_and_there_is_no_outcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.lose(one.trial)
            await one.comes_to(LeaseLost)
            one.attempt.stop("too late")
            one.attempt.abandon(Failure(LOST, "too late"))
            assert await one.conclude() is None
            assert one.attempt.state.current == LeaseLost()
            assert one.runner.ended_count == 1
            assert one.trial not in one.service.finishes

    play(run)


def test_a_report_that_the_service_refuses_fails_it_also_if_it_is_killed_then(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.refused[one.trial] = "no such step"
            report = asyncio.create_task(one.report(0))
            await one.comes_to(Refused)
            assert await report == "stop"
            one.attempt.end_now(Killed())
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.message == "the service refused a report: no such step"

    play(run)


def test_of_a_drained_node_the_workers_get_a_notice_and_stop_at_the_second_report(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.worker_started(0, STARTED)
            one.attempt.drain({"n", "that of the slot"}, 600)
            await asyncio.to_thread(until, lambda: one.runner.announced, "the workers get the notice", SECONDS)
            assert one.runner.announced == [{"n": [0], "that of the slot": []}]
            assert await one.report(0) == "continue"
            assert await one.report(1) == "stop"
            await one.attempt.worker_ended(0, WorkerEnded(has_stopped=True))
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == "preempted"

    play(run)


def test_a_drained_node_gives_it_back_when_the_time_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.worker_started(0, STARTED)
            one.attempt.drain({"n"}, 0.2)
            await one.comes_to(Preempted)
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == "preempted"
            assert not one.attempt.knows_its_checkpoints()

    play(run)


def test_orders_after_the_conclusion_leave_the_workers_to_the_next_attempt(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.conclude()
            for end in (Killed(), LeaseLost(), Preempted()):
                one.attempt.end_now(end)
            one.attempt.stop("too late")
            one.attempt.drain({"n"}, 0)
            await asyncio.sleep(0.1)
            assert one.runner.ended_count == 0

    play(run)


def test_a_slot_that_fails_after_the_conclusion_reports_the_attempt_as_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.conclude()
            await asyncio.to_thread(one.attempt.abandon, Failure(LOST, "no room left"))
            assert isinstance(one.attempt.state.current, Abandoned)
            error = one.service.finishes[one.trial].error
            assert error is not None
            assert (error.kind, error.message) == ("lost", "no room left")

    play(run)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_slot_that_closes_gives_back_what_it_has_not_begun(tmp_path: Path, is_drained: bool) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.refuse_to_start(is_drained=is_drained)
            assert one.attempt.state.current == Preempted()
            assert one.attempt.state.is_drained == is_drained

    play(run)


def test_an_attempt_that_is_given_back_does_not_wait_for_a_service_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, Attempt.finish, "GIVE_BACK_SECONDS", 0.2)

    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.away = True
            one.attempt.end_now(Preempted())
            outcome = await one.conclude()
            assert outcome is not None
            started_at = time.monotonic()
            await one.finish(outcome)
            assert time.monotonic() - started_at < SECONDS
            assert one.trial not in one.service.finishes

    play(run)


def test_an_elastic_group_leaves_at_a_checkpoint_when_there_is_room_and_tells_its_size(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": [1, 4]}) as one:
            one.attempt.group_starts(1)
            assert await one.report(0) == "continue"
            one.attempt.resize(3)
            one.attempt.resize(4)  # it is leaving already
            assert await one.report(1) == "continue"
            assert await one.report(2, f"x/{one.attempt.run_name}/checkpoint_2") == "stop"
            await one.attempt.worker_ended(0, WorkerEnded(has_stopped=True))
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == PREEMPTED
            assert "the elastic group is resized from 1 to 3 workers" in outcome.failure.message
            assert one.attempt.why_workers_not_reusable() is None
            assert set(one.service.world_sizes[one.trial]) == {1}

    play(run)
