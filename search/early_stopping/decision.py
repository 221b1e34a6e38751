"""The decisions of early stopping, each with what it was based on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from search.early_stopping.history import Peer, Peers
from search.problem import Direction
from search.space.space import Params

MAX_COMPARED_WITH = 10
"""The maximum number of trials that `compared_with` names."""


@dataclass(frozen=True)
class Verdict:
    """A rule's decision on a trial that has reached a milestone. `reason` is a sentence for the user.

    `pauses`, with `stop`: the trial is paused there until the rule releases it. `compared_count` is the number of
    trials that `cutoff` was computed from. `compared_with` has the numbers of those nearest to it, best first, at most
    MAX_COMPARED_WITH. `cutoff` is None if there was nothing to compare with.
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
class Release:
    """A rule's decision that a trial which was paused at a milestone resumes. The fields are as in `Verdict`.

    `continue`: it resumes as it is. `promote`: it resumes because it is among the best. `exploit`: it resumes from the
    newest checkpoint of the trial `donor`, with `params` instead of its own.
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


def peers_around(peers: Peers, direction: Direction, rank: int) -> tuple[int, Sequence[Peer]]:
    """The peers nearest to a rank, and the rank of the first of them."""
    first = max(rank - MAX_COMPARED_WITH // 2, 0)
    return first, peers.ranked(direction, first, MAX_COMPARED_WITH)


def numbers_of(peers: Sequence[Peer]) -> tuple[int, ...]:
    return tuple(peer.number for peer in peers)


def compared(value: float, cutoff: float) -> tuple[str, str]:
    """`0.71` and `below 0.83`, with as many digits as are needed to distinguish them."""
    relation = "equal to" if value == cutoff else "above" if value > cutoff else "below"
    digits = next((count for count in range(6, 17) if f"{value:.{count}g}" != f"{cutoff:.{count}g}"), 17)
    digits = 6 if value == cutoff else digits
    return f"{value:.{digits}g}", f"{relation} {cutoff:.{digits}g}"


def if_finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
