"""A slot as its agent knows it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

Scaling = dict[str, Any]
AttemptId = tuple[str, int]
"""The id of an attempt's trial, and the attempt's number."""


@dataclass
class PooledSlot:
    """Its handle and its last status. An adopted slot has no status at first.

    The agent knows the slot since `added_at`. `status_call` is the ObjectRef of a status call under way, made at
    `status_called_at`; `status_at` is when the call was made that brought the last status. `assigned` is an assignment
    that the slot has not confirmed yet, with the ObjectRef of the call; `assigned_count` counts such calls, and
    `call_lost_at` is when the agent saw that Ray had lost this one. `starting` is an assignment whose lease the slot
    does not extend yet: it may have accepted it while its process still imports libraries. `drain_calls` has the
    ObjectRefs of the calls that have announced drained nodes. `failed_disk_number` is the highest
    `number` of the failed disks in its statuses. `withheld_version` is the `version` of the agent's `WithheldNodes`
    when the slot was last told which nodes are withheld.
    """

    name: str
    actor: Any
    key: str | None = None
    scaling: Scaling | None = None
    runs: AttemptId | None = None
    began: bool = False
    idle_seconds: float | None = None
    is_removing: bool = False
    is_closing: bool = False
    lost_count: int = 0
    placement_group: str | None = None
    added_at: float = field(default_factory=time.monotonic)
    status_call: Any = None
    status_called_at: float = 0.0
    status_at: float = 0.0
    assigned: tuple[Any, dict[str, Any]] | None = None
    assigned_count: int = 0
    call_lost_at: float | None = None
    starting: dict[str, Any] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    lease_due_at: float = 0.0
    drain_calls: dict[str, Any] = field(default_factory=dict)
    failed_disk_number: int = 0
    withheld_version: int = 0

    @property
    def silent_seconds(self) -> float:
        """For how long it had not answered when its status was last asked for."""
        return self.status_called_at - max(self.status_at, self.added_at)

    def must_be_told_of_drain(self, node: str) -> bool:
        """Whether it does not know, and no call is under way that tells it."""
        return node not in self.drain_calls or was_lost(self.drain_calls[node])

    def never_got_assignment(self) -> bool:
        """Whether Ray has lost the call with the assignment, given that the slot has not counted it in its last status.

        Only a status that was asked for after the loss tells that the call has not arrived.
        """
        if self.assigned is None or not was_lost(self.assigned[0]):
            return False
        if self.call_lost_at is None:
            self.call_lost_at = time.monotonic()
        return self.status_called_at > self.call_lost_at

    @property
    def is_idle(self) -> bool:
        return self.idle_seconds is not None and self.assigned is None and not self.is_closing

    @property
    def may_await_resources(self) -> bool:
        """Whether it has work. Only Ray knows whether its placement group has been created already."""
        return self.scaling is not None and not self.is_idle and not self.is_closing

    @property
    def is_settled(self) -> bool:
        """Whether the slot runs an attempt or is idle, and is not switching between two."""
        return self.assigned is None and (self.runs is not None or self.idle_seconds is not None)


def was_lost(call: Any) -> bool:
    """Whether the connection to the slot broke during this call, given by its ObjectRef. Does not wait.

    The slot may have got the call nevertheless.
    """
    if not ray.wait([call], timeout=0)[0]:
        return False
    try:
        ray.get(call)
    except ActorUnavailableError:
        return True
    except RayError:  # the slot has died, or refuses what it got
        return False
    return False
