"""What an early stopping rule may look at when it judges a report: the read port of the history."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from search.early_stopping.peers import Peers
from search.problem import Direction

ALL = 0
"""The pool of rules that compare a trial with all that have come as far."""

COMPLETED = -1
"""The pool of trials that ran to their ends: they ended by themselves, or by their own time limits."""

UNCOMPARED = -2
"""The pool of trials that are recorded at a milestone, and not compared there."""

AT_END = -1
"""The milestone of having run to the end, reached with the rule's `value_at_end`. It is below any step."""


@dataclass(frozen=True)
class MetricReport:
    """A report's value of the metric that trials are compared by; `previous_step` is the highest step before it.

    `bracket` is the number of the bracket that is stored with the trial; None if none is.
    """

    number: int
    metric: str
    direction: Direction
    step: int
    value: float
    previous_step: int | None = None
    bracket: int | None = None

    @property
    def is_new(self) -> bool:
        """Whether the trial has reached this step for the first time; a retry repeats steps."""
        return self.previous_step is None or self.previous_step < self.step

    def is_due(self, n_warmup_steps: int, interval_steps: int) -> bool:
        """Whether this is the first report at or after the latest multiple of `interval_steps` past the warm-up."""
        due = self.step - (self.step - n_warmup_steps) % interval_steps
        before = -1 if self.previous_step is None else self.previous_step
        return self.is_new and self.step >= n_warmup_steps and before < due

    def is_worse(self, value: float, than: float) -> bool:
        return value < than if self.direction == "maximize" else value > than


class History(Protocol):
    """The stored history of an experiment, as seen by a rule that judges a report of one trial."""

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        """Store the value with which the trial reached the milestone. False, and no change, if it had already."""

    def peers(self, milestone: int, pool: int) -> Peers: ...

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        """The values by step of that trial; without a number, of the judged trial, including this report."""

    def best_value(self, direction: Direction) -> float:
        """The best value in the curve of the judged trial."""

    def best_since_and_before(self, count: int, direction: Direction) -> tuple[float, float] | None:
        """The best value at the last `count` steps of the judged trial's curve, and the best at the steps before them.

        None if there are no steps before them. `count` is at least 1.
        """
