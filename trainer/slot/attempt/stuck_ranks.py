"""Ranks that wait in a report for one that has returned.

A report of Ray Train's returns when all ranks have made it, and waits without end for one that never will.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from ray.exceptions import RayError

from trainer.ray_train.train_session import waiting_report
from trainer.slot.attempt.attempt_state import AttemptState
from trainer.slot.attempt.ranks import Ranks
from trainer.worker.failures import USER_ERROR, Failure

ANSWER_SECONDS = 5.0


async def find_stuck(
    ranks: Ranks, made: Mapping[int, int], state: AttemptState, check_seconds: float
) -> Failure | None:
    """Ask the ranks that still train, again and again, until one waits in vain; None once the attempt is to end.

    `made` is how many reports each rank has made.
    """
    await asyncio.sleep(check_seconds)  # the others usually return soon, too
    while state.is_running and not state.is_concluded:
        returned = {rank: made.get(rank, 0) for rank in ranks.returned}
        for rank in ranks.silent:
            number = await _waiting_report_of(ranks.started[rank].actor)
            for other, count in sorted(returned.items()):
                if number is not None and number >= count:
                    return _waits_in_vain(rank, other)
        await asyncio.sleep(check_seconds)
    return None


async def _waiting_report_of(worker: Any) -> int | None:
    try:
        number: int | None = await asyncio.wait_for(worker.execute.remote(waiting_report), ANSWER_SECONDS)
    except (RayError, TimeoutError):
        return None  # it has died, or is busy; another check follows
    return number


def _waits_in_vain(waiting: int, returned: int) -> Failure:
    what = f"rank {returned} has returned while rank {waiting} waits for it in ray.train.report()"
    return Failure(USER_ERROR, f"{what}: all ranks must report equally often")
