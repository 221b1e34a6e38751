"""Settings of Python's garbage collector that keep its pauses away from requests."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""Thresholds. A batch of reports allocates thousands of objects, and reference counting frees nearly all of them."""


@contextmanager
def frozen_afterwards() -> Iterator[None]:
    """Pause the collector inside the block, then freeze all objects so that it never scans them again (`gc.freeze`).

    A full scan of the service's modules stops all threads for 0.1 s or more, each time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pause() -> None:
    """For a start: with the collector its imports would take an eighth more time."""
    gc.disable()


def resume_rarely() -> None:
    """Freeze all objects (`frozen_afterwards`), and let the collector run, but at higher thresholds."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    gc.enable()
