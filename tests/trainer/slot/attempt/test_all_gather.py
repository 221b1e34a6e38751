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
