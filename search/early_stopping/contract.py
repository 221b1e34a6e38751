"""The contract of an early-stopping rule, and what it may look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search.problem import Direction

ALL = 0
"""The pool of rules that compare a trial with whoever has come as far."""

COMPLETED = -1
"""The pool of trials that have completed, for rules that compare with those alone."""

AT_END = -1
"""The milestone of having completed, with the last value: below any step."""

SHOWN_COUNT = 10
"""So many of the trials compared with are named in a verdict."""


@dataclass(frozen=True)
class Reported:
    """A report's value of the metric that trials are compared by; `previous_step` is the highest step before it."""

    number: int
    metric: str
    direction: Direction
    step: int
    value: float
    previous_step: int | None = None

    @property
    def is_new(self) -> bool:
        """Whether the trial has never been so far: a retry goes over known ground."""
        return self.previous_step is None or self.previous_step < self.step

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.direction == "maximize" else min(values)

    def is_worse(self, value: float, than: float) -> bool:
        return value < than if self.direction == "maximize" else value > than


@dataclass(frozen=True)
class Verdict:
    """What a rule says at a milestone. `reason` is a sentence for a person.

    `pauses`, with `stop`: the trial leaves there and waits, until the rule says that it goes on.
    `compared_count` counts the trials that `cutoff` was taken from, and `compared_with` has the numbers of those
    nearest to it, best first, at most `SHOWN_COUNT`. `cutoff` is None when there was nothing to compare.
    """

    stop: bool
    rule: str
    step: int
    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    reason: str
    compared_with: tuple[int, ...] = ()
    pauses: bool = False


@dataclass(frozen=True)
class Standing:
    """How many are in a pool, and how many of them with a better value than the one asked for."""

    count: int
    better_count: int


@dataclass(frozen=True)
class Peer:
    """Another trial's value at a milestone."""

    number: int
    value: float


class Peers(Protocol):
    """The others of a pool at a milestone, asked only for what a rule needs: there may be thousands."""

    def count(self) -> int: ...

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
        """With a number, those that tie and have a lower one are better, too."""

    def ranked(self, direction: Direction, first: int, count: int) -> Sequence[Peer]:
        """Those from the place `first` on, the best one's being 0; of those that tie, one order for all places."""


class History(Protocol):
    """What is stored of an experiment, as a rule sees it that looks at one trial's report."""

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        """Store the value with which the trial reached the milestone; False, and nothing changed, if it had already."""

    def peers(self, milestone: int, pool: int) -> Peers: ...

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        """The values by step of that trial; without a number, of the one looked at, this report's included."""

    def best_value(self, direction: Direction) -> float:
        """The best of the curve of the trial looked at."""


class Rule(Protocol):
    """Decisions are functions of stored reports, keyed by step, so that a retry or a restart changes nothing.

    `deciding.decide` says in which order the methods are asked.
    """

    @property
    def compares_completed(self) -> bool:
        """Whether a trial is compared with completed ones alone. If so, those move to the pool `COMPLETED`."""

    def pool_of(self, number: int) -> int:
        """Where the trial is recorded while it runs; unless completed ones count alone, whom it is compared with."""

    def milestones(self, report: Reported, history: History) -> list[int]:
        """Those that the report reaches, in order; some of them may have been reached before."""

    def judge(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        """Whether the trial may go on; None: nothing to say."""
