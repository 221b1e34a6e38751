"""Rules that have trials wait, and what they look at when they say which of those go on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from search.early_stopping.contract import Peer, Peers, Rule
from search.problem import Direction
from search.space.space import Params, Space


@dataclass(frozen=True)
class Release:
    """Why a trial that waited at a milestone goes on. `reason` is a sentence for a person; the rest as in `Verdict`.

    `continue`: as it is. `promote`: it has earned it. `exploit`: from the newest checkpoint of the trial `donor`, with
    `params` in place of its own.
    """

    number: int
    decision: Literal["continue", "promote", "exploit"]
    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    compared_with: tuple[int, ...]
    reason: str
    donor: int | None = None
    params: Params | None = None


@dataclass(frozen=True)
class Member:
    """A trial that waits, for rules that look at all of those at a milestone.

    `saved_step` is that of the checkpoint from which it would go on; None: it would begin anew.
    """

    number: int
    value: float
    params: Params
    saved_step: int | None = None


class Waiting(Protocol):
    """Who waits at which milestone, asked only for what a rule needs: there may be thousands."""

    @property
    def metric(self) -> str:
        """What trials are compared by."""

    @property
    def direction(self) -> Direction: ...

    @property
    def space(self) -> Space:
        """What params may be, for rules that change them."""

    @property
    def seed(self) -> int:
        """The experiment's, for rules that draw."""

    @property
    def others_may_come(self) -> bool:
        """Whether somebody may reach a milestone yet: trials run, are about to, or may still be made."""

    @property
    def any_completed(self) -> bool:
        """Whether some trial has gone to its end."""

    def milestones(self) -> Sequence[int]:
        """Those at which somebody waits, rising.

        As long as others may come, they may be those alone at which something has changed since the rule was asked
        before, whether somebody waits there or not.
        """

    def best(self, milestone: int, pool: int) -> Peer | None:
        """Of the pool's that wait there; of those that tie, the one with the lowest number. None if nobody does."""

    def members(self, milestone: int) -> Sequence[Member]:
        """All that wait there, by number."""

    def peers(self, milestone: int, pool: int) -> Peers:
        """All of the pool that have reached the milestone, whether they wait there or not."""


class Pausing(Rule, Protocol):
    """A rule that may have trials wait: its verdict then says `stop` and `pauses`."""

    @property
    def pauses(self) -> bool: ...

    @property
    def waiting_is_losing(self) -> bool:
        """Whether those that still wait at the end have lost; else they had their turn, and may be the best."""

    def releases(self, waiting: Waiting) -> Iterator[Release]:
        """Who goes on. Each is acted upon before the next is asked for, and what is looked at shows that."""
