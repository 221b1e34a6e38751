"""The calls of a user, with their answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call, repeated until it was answered or given up. Times are seconds since the epoch.

    `of` is the id of the experiment or trial. `status` is that of the answer; None without one. `lost_count` are the
    tries without an answer: each may have had its effect, also much later, when a frozen service continues.
    """

    what: str
    of: str
    at: float
    answered_at: float
    status: int | None
    lost_count: int = 0
    sent: Mapping[str, Any] = field(default_factory=dict)
    created: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.status is not None and self.status < 300

    @property
    def maybe_late(self) -> bool:
        """Whether it may have an effect after `answered_at`."""
        return self.lost_count > 0
