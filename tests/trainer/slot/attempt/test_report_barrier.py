"""All ranks get the same answer, in whatever order reports and answers arrive."""

import asyncio
from typing import Any

from trainer.decisions import CONTINUE, STOP
from trainer.slot.attempt.report_barrier import ReportBarrier
from trainer.worker.messages import RankReport


class Delivered(list[Any]):
    def deliver(self, *report: Any) -> None:
        self.append(report)


def run(scenario: Any, wait_seconds: float = 60) -> tuple[Any, Delivered, int]:
    delivered, complete = Delivered(), list[None]()

    async def play() -> Any:
        return await scenario(
            ReportBarrier(delivered.deliver, lambda: complete.append(None), wait_seconds=wait_seconds)
        )

    return asyncio.run(play()), delivered, len(complete)


def test_both_ranks_get_the_services_decision() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        ranks = [
            asyncio.create_task(barrier.report(RankReport(0, rank, 2, {"a": 1} if rank == 0 else None, None)))
            for rank in (1, 0)
        ]
        await asyncio.sleep(0)
        barrier.decide(0, STOP)
        return await asyncio.gather(*ranks)

    answers, delivered, complete = run(scenario)
    assert answers == [STOP, STOP]
    assert delivered == [(0, {"a": 1}, None)]
    assert complete == 1


def test_a_checkpoint_is_delivered_when_every_rank_has_saved_its_part() -> None:
    async def scenario(barrier: ReportBarrier) -> int:
        first = asyncio.create_task(barrier.report(RankReport(0, 0, 2, {}, "c")))
        await asyncio.sleep(0)
        before = len(delivered_so_far)
        second = asyncio.create_task(barrier.report(RankReport(0, 1, 2, None, "c")))
        await asyncio.sleep(0)
        barrier.decide(0, CONTINUE)
        await asyncio.gather(first, second)
        return before

    delivered_so_far = Delivered()

    async def play() -> int:
        return await scenario(ReportBarrier(delivered_so_far.deliver, lambda: None, wait_seconds=60))

    assert asyncio.run(play()) == 0
    assert delivered_so_far == [(0, {}, "c")]


def test_without_an_answer_training_continues_and_a_late_stop_answers_the_next_report() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        first = await barrier.report(RankReport(0, 0, 1, {}, None))
        barrier.decide(0, STOP)
        return [first, await barrier.report(RankReport(1, 0, 1, {}, None))]

    answers, delivered, _ = run(scenario, wait_seconds=0)
    assert answers == [CONTINUE, STOP]
    assert [sequence for sequence, *_ in delivered] == [0, 1]


def test_a_report_that_comes_again_counts_once_and_gets_the_same_answer() -> None:
    """Ray repeats a call whose answer was lost: before the other rank's report, and after the decision."""

    async def scenario(barrier: ReportBarrier) -> list[str]:
        first, second = (RankReport(0, rank, 2, {"a": 1} if rank == 0 else None, "c") for rank in (0, 1))
        calls = [asyncio.create_task(barrier.report(one)) for one in (first, first, second)]
        await asyncio.sleep(0)
        barrier.decide(0, STOP)
        return [*await asyncio.gather(*calls), await barrier.report(first), await barrier.report(second)]

    answers, delivered, complete = run(scenario)
    assert answers == [STOP] * 5
    assert delivered == [(0, {"a": 1}, "c")]
    assert complete == 1


def test_a_report_that_comes_again_after_a_later_one_changes_nothing() -> None:
    """The connection may deliver it when the rank has its answer already, from a repetition."""

    async def scenario(barrier: ReportBarrier) -> tuple[list[str], dict[int, int]]:
        reports = [RankReport(sequence, 0, 1, {"a": sequence}, None) for sequence in (0, 1, 0)]
        return [await barrier.report(one) for one in reports], barrier.made

    (answers, made), delivered, complete = run(scenario, wait_seconds=0)
    assert answers == [CONTINUE] * 3
    assert made == {0: 2}
    assert delivered == [(0, {"a": 0}, None), (1, {"a": 1}, None)]
    assert complete == 2


def test_a_saved_checkpoint_that_is_told_again_does_not_count_as_a_new_one() -> None:
    async def scenario(barrier: ReportBarrier) -> str:
        barrier.saved(0)
        barrier.leave_when_saved()
        barrier.saved(0)
        return await barrier.report(RankReport(1, 0, 1, {}, None))

    answer, _, _ = run(scenario, wait_seconds=0)
    assert answer == CONTINUE


def test_what_is_reported_after_a_stop_was_answered_does_not_count() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        barrier.leave()
        return [await barrier.report(RankReport(sequence, 0, 1, {}, None)) for sequence in range(3)]

    answers, delivered, _ = run(scenario)
    assert answers == [STOP] * 3
    assert [sequence for sequence, *_ in delivered] == [0]


def test_after_a_report_without_an_answer_the_next_ones_do_not_wait_until_the_service_answers() -> None:
    async def scenario(barrier: ReportBarrier) -> tuple[list[str], bool]:
        first = await barrier.report(RankReport(0, 0, 1, {}, None))
        barrier._wait_seconds = 3600
        unanswered = [first, *[await barrier.report(RankReport(sequence, 0, 1, {}, None)) for sequence in range(1, 20)]]
        barrier.decide(0, CONTINUE)
        waiting = asyncio.create_task(barrier.report(RankReport(20, 0, 1, {}, None)))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        barrier.decide(20, CONTINUE)
        await waiting
        return unanswered, bool(done)

    (answers, done), delivered, _ = run(scenario, wait_seconds=0.5)
    assert answers == [CONTINUE] * 20
    assert len(delivered) == 21
    assert not done


def test_a_group_that_is_to_be_resized_leaves_at_the_report_that_saves_a_checkpoint() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        barrier.leave_when_saved()
        first = asyncio.create_task(barrier.report(RankReport(0, 0, 1, {}, None)))
        await asyncio.sleep(0)
        barrier.decide(0, CONTINUE)
        return [
            await first,
            await barrier.report(RankReport(1, 0, 1, {}, "c")),
            await barrier.report(RankReport(2, 0, 1, {}, None)),
        ]

    answers, delivered, _ = run(scenario)
    assert answers == [CONTINUE, STOP, STOP]
    assert delivered == [(0, {}, None), (1, {}, "c")], "what comes after the report at which it leaves does not count"


def test_a_group_that_is_to_be_resized_leaves_once_a_checkpoint_is_saved_in_the_background() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        early = asyncio.create_task(barrier.report(RankReport(0, 0, 1, {}, "c")))
        await asyncio.sleep(0)
        barrier.leave_when_saved()
        barrier.saved(0)  # its report had the checkpoint already
        barrier.decide(0, CONTINUE)
        before = await early
        barrier.saved(5)
        return [before, await barrier.report(RankReport(6, 0, 1, {}, None))]

    answers, _, _ = run(scenario)
    assert answers == [CONTINUE, STOP]


def test_a_drain_leaves_at_the_second_report_so_that_the_function_may_save_between() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        barrier.decide(0, CONTINUE)
        barrier.leave_soon()
        return [await barrier.report(RankReport(sequence, 0, 1, {}, None)) for sequence in range(3)]

    assert run(scenario, wait_seconds=0)[0] == [CONTINUE, STOP, STOP]


def test_a_drain_leaves_at_a_report_that_saves() -> None:
    async def scenario(barrier: ReportBarrier) -> list[str]:
        waiting = asyncio.create_task(barrier.report(RankReport(0, 0, 1, {}, None)))
        await asyncio.sleep(0)
        barrier.leave_soon()
        barrier.decide(0, CONTINUE)
        return [await waiting, await barrier.report(RankReport(1, 0, 1, {}, "c"))]

    assert run(scenario)[0] == [CONTINUE, STOP]


def test_a_drain_leaves_at_a_report_that_has_just_saved() -> None:
    async def scenario(barrier: ReportBarrier) -> str:
        waiting = asyncio.create_task(barrier.report(RankReport(0, 0, 1, {}, "c")))
        await asyncio.sleep(0)
        barrier.leave_soon()
        return await waiting

    assert run(scenario)[0] == STOP
