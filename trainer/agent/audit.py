"""Which attempts the service believes to run here, and no slot runs: those of slots that died, and those on their way.

An attempt can get lost between the service's commit and a slot: an answer that nobody was left to hear, an agent killed
before it had passed the assignment on, a cluster that died with all its slots. Its lease would tell in time; this tells
at once.
"""

import time
from collections.abc import Iterable, Mapping

from trainer.agent.slot_pool import Held, PooledSlot


class Audit:
    """Compares what the service said with what every slot says afterwards.

    In this order, because a slot gets its next assignment from the service itself: what a slot was given after the
    service had answered is not among `held`, and what it was given before is known to the slot by then, or it waits
    for the service's answer and is asked again until it has it. No claim may be under way while the service is asked.
    """

    def __init__(self, held: set[Held], members: Iterable[PooledSlot]) -> None:
        self._held = held
        self._since = time.monotonic()
        self._unheard = {member.name for member in members}
        self._running: set[Held] = set()

    def lost(self, members: Mapping[str, PooledSlot]) -> set[Held] | None:
        """None as long as a slot has not said what it runs. A slot that is gone by then runs nothing."""
        for name in list(self._unheard):
            member = members.get(name)
            if member is not None and not (member.settled and member.told_at >= self._since):
                continue
            self._unheard.remove(name)
            if member is not None and member.runs is not None:
                self._running.add(member.runs)
        if self._unheard:
            return None
        return self._held - self._running - {member.runs for member in members.values() if member.runs is not None}
