"""A slot that answers its agent as a test says, and the agent's view of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from trainer.agent.slot_pool.pooled_slot import PooledSlot
from trainer.agent.slot_pool.slot_key import slot_key
from trainer.slot.slot_status import SlotStatus

ASSIGNMENT = {"experiment_id": "x-1", "trainer": {"entrypoint": "train:train_fn"}}
SINCE = 10.0
NOTHING_YET: Any = SimpleNamespace(of=lambda _group: None, release=lambda *_: None)
"""No placement group has been created."""
STARTING = SlotStatus(
    name="slot",
    pid=1,
    key="key",
    scaling=None,
    trial="t-1",
    attempt=1,
    idle_seconds=None,
    placement_group=None,
    given_count=1,
    closing=False,
    starting=True,
)

IDLE = replace(STARTING, trial=None, attempt=None, idle_seconds=0.0, starting=False)


class PlayedSlot:
    """A slot's actor that answers with `status`, or with an error in its place. Its ObjectRefs are functions."""

    def __init__(self, status: SlotStatus | Exception) -> None:
        self.answer = status
        self.status = SimpleNamespace(remote=lambda: self._answered)

    def _answered(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer.to_json()


def pooled(name: str = "slot", **fields: Any) -> PooledSlot:
    own = {"actor": None, "key": slot_key(ASSIGNMENT), "runs": ("t-1", 1), "added_at": SINCE, "status_at": SINCE}
    return PooledSlot(name, **{**own, **fields})
