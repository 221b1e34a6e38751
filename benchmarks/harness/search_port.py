"""What every searcher proposes: a trial that reports its steps, each answered by whether it continues."""

from collections.abc import Callable
from typing import Protocol

from benchmarks.harness.problems import Point, Task

METRIC = "value"
MIN_STEP, REDUCTION_FACTOR = 1, 3


class Trial(Protocol):
    @property
    def point(self) -> Point: ...

    @property
    def steps_done(self) -> int:
        """The steps before it paused, if it did."""

    def report(self, step: int, value: float) -> bool:
        """Return whether the trial continues."""

    def end(self, value: float | None) -> None:
        """End the trial with its value; None if it was stopped or paused."""


Ask = Callable[[], Trial]
Search = Callable[[Task, str | None, int], Ask]
"""A function of the task, the early-stopping rule (None: without) and the seed."""
