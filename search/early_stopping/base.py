"""What the rules share: an options model that is the rule, and numbers as a sentence shows them."""

import math
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from search.early_stopping.rule import Peers, Verdict
from search.problem import Direction


class RuleOptions(BaseModel):
    """Its fields are the rule's options; see `Rule` for the methods. This one never says anything."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    reads_history: ClassVar[bool] = False

    def milestones(self, previous_step: int | None, step: int) -> list[int]:  # noqa: ARG002
        return []

    def judge(
        self,
        *,
        metric: str,  # noqa: ARG002
        direction: Direction,  # noqa: ARG002
        milestone: int,  # noqa: ARG002
        step: int,  # noqa: ARG002
        curve: Mapping[int, float],  # noqa: ARG002
        peers: Peers,  # noqa: ARG002
        completed_count: int | None = None,  # noqa: ARG002
    ) -> Verdict | None:
        return None


def compared(value: float, cutoff: float) -> tuple[str, str]:
    """`0.71` and `below 0.83`, with as many digits as it takes to tell them apart."""
    relation = "equal to" if value == cutoff else "above" if value > cutoff else "below"
    digits = next((count for count in range(6, 17) if f"{value:.{count}g}" != f"{cutoff:.{count}g}"), 17)
    digits = 6 if value == cutoff else digits
    return f"{value:.{digits}g}", f"{relation} {cutoff:.{digits}g}"


def if_finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
