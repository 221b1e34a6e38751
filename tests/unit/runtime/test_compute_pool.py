"""Worker processes: what they return and raise, and when they end."""

import asyncio
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from search.mistakes import Mistake
from service.errors import Invalid, NotFound, ServiceError
from service.runtime.computation.compute_pool import MAX_WAITING, WORKERS, ComputePool
from service.runtime.computation.compute_worker import WorkFailed, framed
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    pool = ComputePool()
    yield pool
    pool.close()


def test_a_worker_returns_raises_and_prints(pool: ComputePool) -> None:
    async def use() -> None:
        assert await pool.run(math.hypot, 3.0, 4.0) == 5.0
        await pool.run(print, "not an answer")
        with pytest.raises(WorkFailed, match="ZeroDivisionError"):
            await pool.run(divmod, 1, 0)
        assert await pool.run(os.getpid) != os.getpid()

    asyncio.run(use())


def test_what_cannot_be_sent_to_a_worker_takes_no_place_from_others(pool: ComputePool) -> None:
    async def use() -> None:
        for _ in range(WORKERS + MAX_WAITING):
            with pytest.raises((AttributeError, pickle.PicklingError)):
                await pool.run(bool, lambda: None)
        assert await pool.run(math.hypot, 3.0, 4.0) == 5.0

    asyncio.run(use())


@pytest.mark.parametrize("error", [Invalid([Mistake(("a", 1), "is wrong")]), NotFound("no such thing", counts=1)])
def test_errors_survive_the_way_between_processes(error: ServiceError) -> None:
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - written here
    assert type(copied) is type(error)
    assert copied.body() == error.body()
    assert str(copied) == str(error)


def test_closing_ends_what_is_computed() -> None:
    async def use() -> None:
        pool = ComputePool()
        computing = asyncio.ensure_future(pool.run(time.sleep, 600.0))
        await pool.run(math.hypot, 3.0, 4.0)  # in the other worker
        await asyncio.to_thread(pool.close)
        with pytest.raises(ServiceError):
            await computing

    asyncio.run(use())


def test_a_worker_ends_with_the_service_in_the_middle_of_a_computation() -> None:
    command = [sys.executable, "-c", "from service.runtime.computation.compute_worker import main; main()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin
        worker.stdin.write(framed((time.sleep, (600.0,))))
        worker.stdin.close()
        assert worker.wait(PATIENCE_SECONDS) == 0
