"""The contract of an early-stopping rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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


@dataclass(frozen=True)
class Standing:
    """How many have reached a milestone, and how many of them with a better value than the one asked for."""

    count: int
    better_count: int


class Peers(Protocol):
    """The other trials that have reached a milestone, asked only for what a rule needs: there may be thousands."""

    def standing(self, value: float, direction: Direction) -> Standing: ...

    def value_at(self, place: int, direction: Direction) -> float:
        """The value in that place, the best one's being 0. There must be so many."""

    def completed(self) -> Sequence[float]:
        """The values of those that have completed, in no order."""


class PeerList:
    """Peers that are all at hand."""

    def __init__(self, peers: Sequence[Peer] = ()) -> None:
        self._peers = peers

    def standing(self, value: float, direction: Direction) -> Standing:
        better = [p for p in self._peers if (p.value > value if direction == "maximize" else p.value < value)]
        return Standing(len(self._peers), len(better))

    def value_at(self, place: int, direction: Direction) -> float:
        return sorted((peer.value for peer in self._peers), reverse=direction == "maximize")[place]

    def completed(self) -> Sequence[float]:
        return [peer.value for peer in self._peers if peer.completed]


class Rule(Protocol):
    """Decisions are functions of stored reports, keyed by step, so that a retry or a restart changes nothing.

    For each report: ask for the new milestones; for each of them in order, store (milestone, trial) -> the report's
    value (the first value wins), then judge, and leave off at the first stop (a trial has not reached the milestones
    beyond it).

    `reads_history`: whether it looks at more of the curve than this report's value, and at how many have completed.
    """

    reads_history: ClassVar[bool]

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
        peers: Peers,
        completed_count: int | None = None,
    ) -> Verdict | None:
        """Whether the trial may go on; None: nothing to say.

        `curve`: the trial's own values by step, this report's included; that one alone for a rule that does not read
        history. `completed_count`: how many trials of the experiment have completed, also those with no value at this
        milestone (None: those among the peers are all).
        """
