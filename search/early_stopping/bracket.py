"""The bracket that a rule gives to a trial when the trial is created, and what it may look at for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Bracket:
    """Stored with the trial, so that later decisions do not depend on what has completed since.

    `first_step` is that of its first rung. `share` is the part of new trials that the bracket gets: Hyperband's own
    share, or that of the first trials, times `weight`, as a part of the sum over all brackets. `agreement` says how
    well the ranks of `trial_count` completed trials at the first rung agree with those at the end, from -1 to 1; None
    for a bracket that stops no trial before its end.
    """

    number: int
    first_step: int
    share: float
    weight: float
    agreement: float | None
    trial_count: int


class CompletedTrials(Protocol):
    """The completed trials of an experiment, as seen by a rule that gives a bracket to a new one."""

    def newest(self, count: int) -> Sequence[int]:
        """The numbers of at most `count` completed trials, those with the highest numbers, ascending."""

    def value_at(self, number: int, milestone: int) -> float | None:
        """The value with which the trial has reached the milestone, which may be AT_END; None if it has not."""
