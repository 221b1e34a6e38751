"""How a service loads what it is made of, and what that has to do with Python's collector of garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""A batch of reports makes thousands of objects, and nearly all go without a collector's help."""


@contextmanager
def for_good() -> Iterator[None]:
    """What is loaded within stays as long as the process: the collector passes it over, now and ever after.

    To look through all the modules of a service stops its threads for a tenth of a second and more, each time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_seldom() -> None:
    gc.set_threshold(YOUNG, MIDDLE, OLD)
