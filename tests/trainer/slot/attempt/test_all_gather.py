"""All ranks get the values of all."""

import asyncio
from typing import Any

from trainer.slot.attempt.all_gather import AllGather


def test_all_ranks_get_the_values_in_the_order_of_the_ranks_each_time() -> None:
    async def play() -> list[Any]:
        all_gather, found = AllGather(), []
        for number in (0, 1):
            calls = [all_gather(number, rank, 3, f"{number}-{rank}") for rank in (2, 0, 1)]
            found += await asyncio.gather(*calls)
        return found

    assert asyncio.run(play()) == [[f"{number}-{rank}" for rank in range(3)] for number in (0, 1) for _ in range(3)]


def test_a_rank_whose_others_have_died_gets_nothing() -> None:
    async def play() -> list[Any]:
        all_gather = AllGather()
        waiting = asyncio.create_task(all_gather(0, 0, 2, "a"))
        await asyncio.sleep(0)
        all_gather.close()
        return [await waiting, await all_gather(1, 0, 2, "b")]

    assert asyncio.run(play()) == [[], []]


def test_a_call_that_comes_again_gets_the_same_values_and_is_not_waited_for() -> None:
    """Ray repeats a call whose answer was lost, also after all ranks have called."""

    async def play() -> list[Any]:
        all_gather = AllGather()
        early = [asyncio.create_task(all_gather(0, 0, 2, "a")) for _ in range(2)]
        await asyncio.sleep(0)
        late = [await all_gather(0, rank, 2, "b") for rank in (1, 1, 0)]
        following = await asyncio.gather(*(all_gather(1, rank, 2, rank) for rank in (0, 1)))
        return [*await asyncio.gather(*early), *late, following[0], await all_gather(0, 0, 2, "a")]

    assert asyncio.run(play()) == [["a", "b"]] * 5 + [[0, 1], []]
