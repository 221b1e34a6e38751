"""What a slot answers to its agent, which may be of another version: the agent adopts the slots of a former one."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class SlotStatus:
    """The names of the fields are a contract between versions. Those with a default are newer than the others.

    `key` and `scaling` say what the slot can run; `trial` and `attempt` what it runs or is about to. `began`: whether
    any of the attempt's workers has. `starting`: it does not extend the lease yet. `given_count` counts the
    assignments that it was offered, `lost_count` the attempts that it has reported as lost. `failed_disks` has an
    entry for each node whose disk an attempt has found full or failing, while it is withheld: the `node`, the `number`
    of the failure, the `reason`, and the `seconds` for which it is to be withheld from now on.
    """

    name: str
    pid: int
    key: str | None
    scaling: dict[str, Any] | None
    trial: str | None
    attempt: int | None
    idle_seconds: float | None
    placement_group: str | None
    given_count: int
    closing: bool
    began: bool = True
    starting: bool = False
    removing: bool = False
    nodes: list[str] = field(default_factory=list)
    draining: bool = False
    lost_count: int = 0
    bytes_without_room: int | None = None
    failed_disks: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "SlotStatus":
        """Read the status of a slot of any version: missing fields get their defaults, and unknown ones are ignored."""
        return cls(**{one.name: body[one.name] for one in fields(cls) if one.name in body})

    @property
    def runs(self) -> tuple[str, int] | None:
        """The attempt, as its trial and number."""
        return None if self.trial is None or self.attempt is None else (self.trial, self.attempt)
