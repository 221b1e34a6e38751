"""The decisions of early stopping, each with what it was based on."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from search.early_stopping.peers import Peer, Peers
from search.numbers_in_messages import distinct_texts
from search.problem import Direction
from search.space.space import Params

MAX_COMPARED_WITH = 10
"""The maximum number of trials that `compared_with` names."""


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What a decision is based on.

    `value` is the trial's at the milestone. `cutoff` is None if there was nothing to compare with. `compared_count` is
    the number of trials that it was computed from. `compared_with` has the numbers of those nearest to it, best first,
    at most MAX_COMPARED_WITH. `reason` is a sentence for the user.
    """

    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    compared_with: tuple[int, ...] = ()
    reason: str

    def grounds(self) -> dict[str, Any]:
        """These fields alone, as JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(Grounds)}
        return {**found, "compared_with": list(self.compared_with)}


@dataclass(frozen=True, kw_only=True)
class Verdict(Grounds):
    """A rule's decision on a trial that has reached a milestone with its report of `step`.

    `pauses`, with `stop`: the trial is paused there until the rule releases it.
    """

    rule: str
    step: int
    stop: bool
    pauses: bool = False


@dataclass(frozen=True, kw_only=True)
class Release(Grounds):
    """A rule's decision that a trial which was paused at a milestone resumes.

    `continue`: it resumes as it is. `promote`: it resumes because it is among the best. `exploit`: it resumes from the
    newest checkpoint of the trial `donor`, with `params` instead of its own.
    """

    number: int
    decision: Literal["continue", "promote", "exploit"]
    donor: int | None = None
    params: Params | None = None


def peers_around(peers: Peers, direction: Direction, rank: int) -> tuple[int, Sequence[Peer]]:
    """The peers nearest to a rank, and the rank of the first of them."""
    first = max(rank - MAX_COMPARED_WITH // 2, 0)
    return first, peers.ranked(direction, first, MAX_COMPARED_WITH)


def compared(value: float, cutoff: float) -> tuple[str, str]:
    """`0.71` and `below 0.83`, with as many digits as are needed to distinguish them."""
    relation = "equal to" if value == cutoff else "above" if value > cutoff else "below"
    found, bound = distinct_texts(value, cutoff)
    return found, f"{relation} {bound}"
