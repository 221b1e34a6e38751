"""Entrypoints are checked in several threads at once."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import pytest

from service.operations.packages.entrypoint import mistakes_in_entrypoint

THREADS = 2
SOURCE = b"def train(config):\n" + b"    x = [1, 2, (3, 4), {5: 6}]\n" * 30


@pytest.fixture
def switching_collector() -> Iterator[None]:
    """Collects often, and lets other threads run meanwhile, as a finalizer may."""
    barrier, thresholds = Barrier(THREADS), gc.get_threshold()

    def switch(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            try:
                barrier.wait(0.001)
            except BrokenBarrierError:
                barrier.reset()

    gc.set_threshold(20)
    gc.callbacks.append(switch)
    yield
    gc.callbacks.remove(switch)
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("switching_collector")
def test_checks_do_not_disturb_each_other() -> None:
    def check(_: int) -> list[object]:
        return list(mistakes_in_entrypoint(["train.py"], {"train.py": SOURCE}, "train:train"))

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(check, range(100))) == [[]] * 100
