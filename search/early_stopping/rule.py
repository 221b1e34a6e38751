"""The contract of an early-stopping rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search.problem import Direction


@dataclass(frozen=True)
class Verdict:
    """What a rule says at a milestone. `reason` is a sentence for a person.

    `compared_count` counts the trials that `cutoff` was taken from; `cutoff` is None when there was nothing to compare.
    """

    stop: bool
    rule: str
    step: int
    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    reason: str


@dataclass(frozen=True)
class Peer:
    """Another trial's value recorded at the same milestone, and whether that trial has completed."""

    number: int
    value: float
    completed: bool


class Rule(Protocol):
    """Decisions are functions of stored reports, keyed by step, so that a retry or a restart changes nothing.

    For each report: ask for the new milestones; for each of them in order, store (milestone, trial) -> the report's
    value (the first value wins), then judge, and leave off at the first stop (a trial has not reached the milestones
    beyond it).
    """

    def milestones(self, previous_step: int | None, step: int) -> list[int]:
        """The milestones newly reached by a report at `step`; `previous_step` is the highest step before, or None."""

    def judge(
        self,
        *,
        metric: str,
        direction: Direction,
        milestone: int,
        step: int,
        curve: Mapping[int, float],
        peers: Sequence[Peer],
        completed_count: int | None = None,
    ) -> Verdict | None:
        """Whether the trial may go on; None: nothing to say.

        `curve`: the trial's own values by step, this report's included. `completed_count`: how many trials of the
        experiment have completed, also those with no value at this milestone (None: those among the peers are all).
        """
