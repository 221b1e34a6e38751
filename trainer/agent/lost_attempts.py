"""Finds the attempts that the service believes to run on an agent, and that no slot of it runs.

An attempt can get lost between the service's commit and a slot: in an answer whose caller has died, in an agent that is
killed before it passes the assignment on, in a cluster that dies with all its slots. Its lease would expire in time;
the audit notices sooner.
"""

import time
from collections.abc import Iterable, Mapping

from trainer.agent.slot_pool.pooled_slot import AttemptId, PooledSlot


class LostAttemptAudit:
    """Compares the attempts that the service has named (`held`) with the status of every slot afterwards.

    The order matters, because a slot gets its next assignment from the service itself. What a slot was given after the
    service had answered is not in `held`. What it was given before is in its status; or the slot still waits for the
    service's answer, and is asked again. No claim may be under way while the service is asked.
    """

    def __init__(self, held: set[AttemptId], slots: Iterable[PooledSlot]) -> None:
        self._held = held
        self._since = time.monotonic()
        self._unknown = {slot.name for slot in slots}
        self._running: set[AttemptId] = set()

    def lost(self, slots: Mapping[str, PooledSlot]) -> set[AttemptId] | None:
        """None until every slot has reported what it runs. A slot that has died by then runs nothing."""
        for name in list(self._unknown):
            slot = slots.get(name)
            if slot is not None and not (slot.is_settled and slot.status_at >= self._since):
                continue
            self._unknown.remove(name)
            if slot is not None and slot.runs is not None:
                self._running.add(slot.runs)
        if self._unknown:
            return None
        return self._held - self._running - {slot.runs for slot in slots.values() if slot.runs is not None}
