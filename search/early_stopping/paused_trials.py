"""What an early stopping rule may look at when it decides which paused trials resume: a read port."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from search.early_stopping.peers import Peer, Peers
from search.problem import Direction
from search.space.space import Params, Space


@dataclass(frozen=True)
class PausedTrial:
    """A paused trial, for rules that look at all of them at a milestone.

    `saved_step` is that of the checkpoint from which it would resume; None if it has none and would start again.
    """

    number: int
    value: float
    params: Params
    saved_step: int | None = None


class PausedTrials(Protocol):
    """The paused trials by milestone. A rule queries only what it needs, because there may be thousands."""

    @property
    def metric(self) -> str:
        """The metric that trials are compared by."""

    @property
    def direction(self) -> Direction: ...

    @property
    def space(self) -> Space:
        """The experiment's space, for rules that change params."""

    @property
    def seed(self) -> int:
        """The experiment's seed, for rules that draw random numbers."""

    @property
    def others_may_come(self) -> bool:
        """Whether further trials may reach a milestone: some run, are queued, or may still be created."""

    @property
    def any_completed(self) -> bool:
        """Whether a trial has run to its end."""

    def milestones(self) -> Sequence[int]:
        """The milestones at which trials are paused, ascending.

        While others may come, an implementation may return only the milestones at which something has changed since the
        last call, whether trials are paused there or not.
        """

    def best(self, milestone: int, pool: int) -> Peer | None:
        """The best trial of the pool that is paused there, of those that tie the oldest; None if there is none."""

    def members(self, milestone: int) -> Sequence[PausedTrial]:
        """All trials that are paused there, by number."""

    def peers(self, milestone: int, pool: int) -> Peers:
        """All trials of the pool that have reached the milestone, paused or not."""
