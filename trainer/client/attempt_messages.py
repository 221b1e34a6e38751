"""What a slot tells the service of an attempt: bodies of `trainer.wire`, which needs pydantic.

`tests/trainer/client/test_attempt_messages.py` checks that the two agree. What says nothing is left out: a service of
an earlier version would refuse a field that it does not know.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Progress:
    """What a heartbeat tells of the attempt: fields of `trainer.wire.Heartbeat`, and what they are there."""

    phases: dict[str, float] | None = None
    running_seconds: float | None = None
    world_size: int | None = None
    system_metrics: list[dict[str, Any]] = field(default_factory=list)
    is_ending: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return _without_absent(vars(self))


@dataclass(frozen=True)
class FinishBody:
    """As `trainer.wire.Finish`."""

    outcome: str
    error: dict[str, Any] | None
    phases: dict[str, float]
    system_metrics: list[dict[str, Any]]
    next: bool

    def to_json(self) -> dict[str, Any]:
        return _without_absent(vars(self))


def _without_absent(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != []}
