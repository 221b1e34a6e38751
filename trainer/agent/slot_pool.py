"""The slots of one agent: started, adopted, watched and closed."""

import hashlib
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError

from trainer.agent.cluster import (
    Holdings,
    draining_nodes,
    find_slots,
    free_resources,
    orphaned_groups,
    remove_group,
    start_slot,
    total_resources,
)
from trainer.agent.spare_slot import Spare
from trainer.resources import Nodes, gang, place

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 4.0
# A slot that forms its worker group may not answer for as long as its placement group may take.
SILENT_SECONDS = 120.0
DRAIN_LOOK_SECONDS = 1.0
# A node without a deadline waits for its work to end. Before a deadline, a moment to end the workers and to say so.
LONGEST_GRACE_SECONDS = 30.0
LAST_WORDS_SECONDS = 2.0

# After a slot's death, for its processes to be gone, too.
SWEEP_SECONDS = 10.0
SWEEP_EVERY_SECONDS = 1.0

# Of an adopted slot that has not run anything: nothing is of its kind, and it closes soon.
NO_KEY = ""

Scaling = dict[str, Any]
Held = tuple[str, int]
"""An attempt: its trial's id and its number."""


def key_of(assignment: dict[str, Any]) -> str:
    """Assignments with the same key can run on the same slot: all but the function's name must be the same."""
    trainer = {name: value for name, value in assignment["trainer"].items() if name != "entrypoint"}
    shape = json.dumps([assignment["experiment_id"], trainer], sort_keys=True)
    return hashlib.sha256(shape.encode()).hexdigest()[:16]


@dataclass
class PooledSlot:
    """A slot as the agent knows it: its handle and what it said last; nothing yet if it was adopted."""

    name: str
    actor: Any
    key: str | None = None
    scaling: Scaling | None = None
    runs: Held | None = None
    began: bool = False
    idle_seconds: float | None = None
    closing: bool = False
    placement_group: str | None = None
    asked: Any = None
    asked_at: float = 0.0
    told_at: float = 0.0
    given: tuple[Any, dict[str, Any]] | None = None
    given_count: int = 0
    beat_at: float = 0.0
    drained: set[str] = field(default_factory=set)

    @property
    def idle(self) -> bool:
        return self.idle_seconds is not None and self.given is None and not self.closing

    @property
    def awaits_resources(self) -> bool:
        """It is to run something; whether its gang has its place already, only Ray knows."""
        return self.scaling is not None and not self.idle and not self.closing

    @property
    def settled(self) -> bool:
        """Not between two attempts."""
        return self.given is None and (self.runs is not None or self.idle_seconds is not None)


class SlotPool:
    """`spare`: whether a slot is to be ready before the first trial comes."""

    def __init__(self, agent: str, service_url: str, *, spare: bool = False) -> None:
        self._prefix = f"slot.{agent}."
        self._url = service_url
        self._spare = Spare(self._prefix, service_url, wanted=spare)
        self._draining: dict[str, float] = {}
        self._look_at = 0.0
        self._sweep_at = self._sweep_until = 0.0
        self.members: dict[str, PooledSlot] = {}

    def adopt(self) -> None:
        """Take over the slots that a former agent of this name left running; they say what they are when asked."""
        self._sweep_until = time.monotonic() + SWEEP_SECONDS
        self.members |= {name: PooledSlot(name, actor) for name, actor in find_slots(self._prefix).items()}

    def refresh(self) -> dict[Held, bool]:
        """Ask every slot how it is, without waiting.

        Returns what those that have died were running, and whether any worker of that had begun.
        """
        self._pass_on_drains()
        self._sweep()
        self._spare.look_after(idle=not self.members)
        now = time.monotonic()
        for member in self.members.values():
            if member.asked is None:
                member.asked, member.asked_at = member.actor.status.remote(), now
        refs = [member.asked for member in self.members.values()]
        answered = set(ray.wait(refs, num_returns=len(refs), timeout=0.2)[0]) if refs else set()
        lost: dict[Held, bool] = {}
        for member in list(self.members.values()):
            if member.asked in answered:
                lost |= self._hear(member)
            elif now - member.asked_at > SILENT_SECONDS:
                lost |= self._bury(member, f"has not answered for {SILENT_SECONDS:g} s and is ended")
        return lost

    def _hear(self, member: PooledSlot) -> dict[Held, bool]:
        try:
            self._told(member, ray.get(member.asked))
        except (RayActorError, ActorUnschedulableError) as error:
            return self._bury(member, "closed itself" if member.closing else f"died: {str(error).splitlines()[0]}")
        member.asked = None
        return {}

    def _told(self, member: PooledSlot, status: dict[str, Any]) -> None:
        if member.key is None:
            logger.info("adopted slot %s, running %s", member.name, status["trial"] or "nothing")
            member.key, member.scaling = status["key"] or NO_KEY, status["scaling"]
            member.given_count = status["given_count"]
        if status["given_count"] < member.given_count:
            return  # it said so before it heard of its assignment
        member.told_at = member.asked_at
        if member.given is not None:
            (ref, assignment), member.given = member.given, None
            if not ray.get(ref):  # it was about to close itself
                self.take(assignment)
        member.runs = (status["trial"], status["attempt"]) if status["trial"] else None
        member.began = status.get("began", True)  # a slot of an earlier version does not say
        member.idle_seconds = status["idle_seconds"]
        member.placement_group = status["placement_group"]
        member.closing = status["closing"]

    def _bury(self, member: PooledSlot, how: str) -> dict[Held, bool]:
        """Free what it held. Killed as well: a slot that is only out of reach must not go on without an agent."""
        logger.warning("slot %s %s", member.name, how)
        del self.members[member.name]
        ray.kill(member.actor)
        self._sweep_until = time.monotonic() + SWEEP_SECONDS
        return {member.runs: member.began} if member.runs else {}

    def _sweep(self) -> None:
        """Free what dead slots held, also those of which nobody had heard yet what they hold."""
        now = time.monotonic()
        if self._sweep_at <= now < self._sweep_until:
            self._sweep_at = now + SWEEP_EVERY_SECONDS
            for group in orphaned_groups():
                logger.info("placement group %s is left of a slot that died", group)
                remove_group(group)

    def _pass_on_drains(self) -> None:
        """Tell each slot once of each node that will be taken away."""
        now = time.monotonic()
        if now >= self._look_at:
            self._draining, self._look_at = draining_nodes(), now + DRAIN_LOOK_SECONDS
        for member in self.members.values():
            news = self._draining.keys() - member.drained
            if news:
                left = min(self._draining[node] for node in news) - LAST_WORDS_SECONDS
                member.actor.drain.remote(sorted(news), max(0.0, min(left, LONGEST_GRACE_SECONDS)))
                member.drained |= news

    def unheard(self) -> list[dict[str, Any]]:
        """Assignments whose slot has not said yet that it has them, and whose leases are due to be extended.

        A slot extends its lease itself; one whose process takes long to start cannot do so yet.
        """
        now, due = time.monotonic(), []
        for member in self.members.values():
            if member.given is not None and now >= member.beat_at:
                member.beat_at = now + float(member.given[1]["lease"]["seconds"]) / 3
                due.append(member.given[1])
        return due

    def offer(self) -> list[dict[str, Any]]:
        """Each node that will stay with its resources in total and free, idle slots' counted as free."""
        free = self._offered()
        return [
            {"total": total, "free": free.get(node, {})} for node, total in self._staying(total_resources()).items()
        ]

    def _staying(self, nodes: Nodes) -> Nodes:
        return {node: amounts for node, amounts in nodes.items() if node not in self._draining}

    def _offered(self) -> Nodes:
        """What an assignment may count on: what is unclaimed, and what idle slots hold."""
        holdings = Holdings()
        free = self._unclaimed(holdings)
        for member in self.members.values():
            if member.idle:
                holdings.give_back(member.placement_group, free)
        return {node: {name: max(0.0, amount) for name, amount in amounts.items()} for node, amounts in free.items()}

    def _unclaimed(self, holdings: Holdings) -> Nodes:
        """What is free at Ray, less what slots that have just started are about to take."""
        free = self._staying(free_resources())
        for member in self.members.values():
            if member.awaits_resources and holdings.of(member.placement_group) is None:
                placed = place(gang(member.scaling or {}), free)
                free = placed.left if placed else free
        return free

    def unsettled(self, assignment: dict[str, Any], since: float) -> bool:
        """Whether a slot that could run it may become idle at once: it ends an attempt, or was not heard after `since`.

        For an idle slot there is nothing to wait.
        """
        key = key_of(assignment)
        same = [m for m in self.members.values() if m.key == key and m.given is None and not m.closing]
        return not any(m.idle for m in same) and any(m.told_at < since or not m.settled for m in same)

    def take(self, assignment: dict[str, Any]) -> None:
        """Run it on an idle slot of its kind, or on a new one, for which others make room."""
        key = key_of(assignment)
        member = next((m for m in self.members.values() if m.idle and m.key == key), None) or self._start(
            assignment, key
        )
        member.runs, member.began, member.idle_seconds = (assignment["trial"], assignment["attempt"]), False, None
        member.given = member.actor.run.remote(assignment, key, member.scaling), assignment
        member.given_count += 1

    def _start(self, assignment: dict[str, Any], key: str) -> PooledSlot:
        """A new slot, on the node that its first worker will probably get.

        There the slot depends on no node that its workers don't depend on, and slots spread as their work does.
        """
        scaling = assignment["trainer"]["scaling"]
        self._make_room(scaling)
        placed = place(gang(scaling), self._unclaimed(Holdings()))
        node = placed.nodes[0] if placed else None
        name, actor = self._spare.take(node) or start_slot(self._prefix, node, self._url)
        self.members[name] = PooledSlot(name, actor, key, scaling)
        logger.info("slot %s starts for experiment %s", name, assignment["experiment"])
        return self.members[name]

    def _make_room(self, scaling: Scaling) -> None:
        """Close idle slots, longest idle first, until the gang fits."""
        idle = sorted((m for m in self.members.values() if m.idle), key=lambda m: -(m.idle_seconds or 0))
        for member in idle:
            if place(gang(scaling), self._unclaimed(Holdings())) is not None:
                return
            self.close([member])

    def close_idle(self, seconds: float) -> None:
        self.close([m for m in self.members.values() if m.idle and (m.idle_seconds or 0) > seconds])

    def close_all(self) -> None:
        self._spare.close()
        self.close(list(self.members.values()))

    def close(self, members: list[PooledSlot]) -> None:
        """End these slots; what they run is given back to the service."""
        refs = [member.actor.close.remote() for member in members]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_SECONDS)
        for member in members:
            ray.kill(member.actor)
            self.members.pop(member.name, None)
            logger.info("slot %s closed", member.name)
