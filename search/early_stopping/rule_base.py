"""What the rules share: an options model that is the rule, and numbers as a sentence shows them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from search.early_stopping.contract import ALL, SHOWN_COUNT, History, Peer, Peers, Reported, Verdict
from search.early_stopping.pause_contract import Release, Waiting
from search.problem import Direction

MAX_COUNT = 2**53
"""Steps go no further; a database would not take much more."""


class RuleOptions(BaseModel):
    """Its fields are the rule's options; see `Rule` and `Pausing` for the methods. This one never says anything."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    by_rungs: ClassVar[bool] = False
    not_replayed: ClassVar[str | None] = None  # why it cannot be

    @property
    def compares_completed(self) -> bool:
        return False

    @property
    def pauses(self) -> bool:
        return False

    @property
    def waiting_is_losing(self) -> bool:
        return True

    def pool_of(self, number: int) -> int:  # noqa: ARG002
        return ALL

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        return []

    def judge(self, report: Reported, milestone: int, history: History) -> Verdict | None:  # noqa: ARG002
        return None

    def releases(self, waiting: Waiting) -> Iterator[Release]:  # noqa: ARG002
        return iter(())


class StoppingRule(RuleOptions):
    """A rule that may stop trials.

    `metric`, with its `direction`, is what trials are compared by: without it, the experiment's only objective.
    `grace_steps`: no trial is stopped before this step; it is recorded and compared all the same.
    """

    metric: Annotated[str, Field(min_length=1)] | None = None
    direction: Direction | None = None
    grace_steps: Annotated[int, Field(ge=0)] = 0

    def judge(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        verdict = self._look(report, milestone, history)
        if verdict is None or not verdict.stop or report.step >= self.grace_steps:
            return verdict
        grace = f"nobody is stopped before step {self.grace_steps}"
        return replace(verdict, stop=False, pauses=False, reason=f"{verdict.reason}; {grace}")

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        """The verdict without grace."""
        raise NotImplementedError


def around(peers: Peers, direction: Direction, place: int) -> tuple[int, Sequence[Peer]]:
    """Those of the ranking nearest to a place, and the place of the first of them."""
    first = max(place - SHOWN_COUNT // 2, 0)
    return first, peers.ranked(direction, first, SHOWN_COUNT)


def numbers(peers: Sequence[Peer]) -> tuple[int, ...]:
    return tuple(peer.number for peer in peers)


def compared(value: float, cutoff: float) -> tuple[str, str]:
    """`0.71` and `below 0.83`, with as many digits as it takes to tell them apart."""
    relation = "equal to" if value == cutoff else "above" if value > cutoff else "below"
    digits = next((count for count in range(6, 17) if f"{value:.{count}g}" != f"{cutoff:.{count}g}"), 17)
    digits = 6 if value == cutoff else digits
    return f"{value:.{digits}g}", f"{relation} {cutoff:.{digits}g}"


def if_finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
