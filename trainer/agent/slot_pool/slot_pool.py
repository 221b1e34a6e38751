"""The slots of one agent: started, adopted, watched and closed."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError

from trainer.agent.cluster import draining_nodes, find_slots, node_address, start_slot
from trainer.agent.prestarted_workers import PrestartLoop
from trainer.agent.slot_pool.node_offer import NodeOffer
from trainer.agent.slot_pool.pooled_slot import AttemptId, PooledSlot, Scaling
from trainer.agent.slot_pool.slot_key import slot_key
from trainer.agent.slot_pool.spare_slot import SpareSlot
from trainer.client.addresses import ServiceAddresses
from trainer.ray_train.cluster_state import orphaned_placement_groups, remove_group
from trainer.ray_train.processes.runtime_environments import forked_runtime_env
from trainer.resources import WorkerGroup
from trainer.slot.nodes.withheld_nodes import WithheldNodes
from trainer.slot.slot_status import SlotStatus
from trainer.storable_values import storable_text

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 4.0

IDLE_SLOT_SECONDS = 5.0
"""How long a slot without work stays, other than a spare one: its experiment's next trial may be about to start. A slot
that still removes checkpoints stays longer, unless its resources are needed, because no other process removes them."""

SILENT_SECONDS = 120.0
"""A slot that does not answer for so long is killed. It may not answer while its placement group starts."""

STATUS_WAIT_SECONDS = 0.2
DRAIN_CHECK_SECONDS = 1.0

MAX_GRACE_SECONDS = 30.0
"""How long a drained node's attempts may take to leave. A drain without a deadline waits for its work to end."""

DRAIN_MARGIN_SECONDS = 2.0
"""Before a drain's deadline: the time to end the workers and to report it."""

ORPHAN_SEARCH_SECONDS = 10.0
"""For so long after a slot's death the pool looks for placement groups that it leaves: its processes end later."""

ORPHAN_SEARCH_INTERVAL_SECONDS = 1.0

MAX_REASON = 2_000
"""The longest reason for which a node is withheld, in characters."""

NO_KEY = ""
"""The key of an adopted slot that has not run anything: no assignment fits it, and it closes soon."""

LostAttempts = dict[AttemptId, bool]
"""Attempts that no slot runs any more; of each whether any of its workers may have begun."""


class SlotPool:
    """`spare`: whether a slot is to be ready before the first trial comes. `prestarted`: as `PrestartLoop.count`.

    With `prestarted` workers, the processes of slots and workers come from the nodes' fork servers, and have imported
    the modules `preloaded`. `clock` times for how long nodes are withheld.
    """

    def __init__(
        self,
        agent: str,
        addresses: ServiceAddresses,
        *,
        spare: bool = False,
        prestarted: int = 0,
        preloaded: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = f"slot.{agent}."
        self._addresses = addresses
        self._runtime_env = forked_runtime_env(preloaded) if prestarted else {}
        self._spare = SpareSlot(self._prefix, addresses, self._runtime_env, is_wanted=spare)
        self.prestart = PrestartLoop(prestarted, self._runtime_env)
        self._withheld = WithheldNodes(clock)
        self._draining: dict[str, float] = {}
        self._drain_check_at = 0.0
        self._orphan_search_at = self._orphan_search_until = 0.0
        self._has_losses = False
        self._bytes_without_room: int | None = None
        self.slots: dict[str, PooledSlot] = {}

    def take_losses(self) -> bool:
        """Whether slots have died or have reported attempts as lost since the last call."""
        found, self._has_losses = self._has_losses, False
        return found

    def take_bytes_without_room(self) -> int | None:
        """The size of the largest checkpoint since the last call for which the storage had no room."""
        found, self._bytes_without_room = self._bytes_without_room, None
        return found

    def adopt(self) -> None:
        """Take over the slots that a former agent of this name left running. Their status says what they are.

        Behind the prefix, their names have no dot, and agents' names may have some: those of the slots of `gpu.2`
        begin with the prefix of the agent `gpu`, too.
        """
        self._orphan_search_until = time.monotonic() + ORPHAN_SEARCH_SECONDS
        for name, actor in find_slots(self._prefix).items():
            if "." not in name.removeprefix(self._prefix):
                self.slots[name] = PooledSlot(name, actor)

    def refresh(self) -> LostAttempts:
        """Update the status of every slot, without waiting for a slow one.

        Returns the attempts of the slots that have died.
        """
        self._forward_drains()
        self._remove_orphaned_groups()
        self._spare.refresh(pool_is_empty=not self.slots)
        now = time.monotonic()
        for slot in self.slots.values():
            if slot.status_call is None:
                slot.status_call, slot.status_called_at = slot.actor.status.remote(), now
        calls = [slot.status_call for slot in self.slots.values()]
        answered = set(ray.wait(calls, num_returns=len(calls), timeout=STATUS_WAIT_SECONDS)[0]) if calls else set()
        lost: LostAttempts = {}
        for slot in list(self.slots.values()):
            if slot.status_call in answered:
                lost |= self._read_status(slot)
            elif now - slot.status_called_at > SILENT_SECONDS:
                lost |= self._remove_dead(slot, f"has not answered for {SILENT_SECONDS:g} s and is killed")
        for slot in self.slots.values():
            self._tell_withheld(slot)
        return lost

    def _read_status(self, slot: PooledSlot) -> LostAttempts:
        try:
            lost = self._apply_status(slot, SlotStatus.from_json(ray.get(slot.status_call)))
        except ActorUnavailableError as error:
            lost = {}
            if slot.silent_seconds > SILENT_SECONDS:
                return self._remove_dead(slot, f"is out of reach, and is killed: {str(error).splitlines()[0]}")
        except (RayActorError, ActorUnschedulableError) as error:
            how = "closed itself" if slot.is_closing else f"died: {str(error).splitlines()[0]}"
            return self._remove_dead(slot, how)
        slot.status_call = None
        return lost

    def _apply_status(self, slot: PooledSlot, status: SlotStatus) -> LostAttempts:
        if slot.key is None:
            logger.info("adopted slot %s, running %s", slot.name, status.trial or "nothing")
            slot.key, slot.scaling = status.key or NO_KEY, status.scaling
        lost: LostAttempts = {}
        if status.given_count < slot.assigned_count:
            if not slot.never_got_assignment():
                return {}  # this status is older than the slot's assignment
            lost = self._take_back(slot)
        slot.status_at, slot.assigned_count = slot.status_called_at, status.given_count
        if slot.assigned is not None:
            (call, assignment), slot.assigned = slot.assigned, None
            if not ray.get(call):  # the slot was about to close itself
                self.run(assignment, slot.secrets)
        if not status.starting:
            slot.starting = None
        slot.runs, slot.began = status.runs, status.began
        slot.idle_seconds, slot.is_removing = status.idle_seconds, status.removing
        slot.placement_group, slot.is_closing = status.placement_group, status.closing
        self._note_losses(slot, status)
        self._note_failed_disks(slot, status)
        return lost

    def _take_back(self, slot: PooledSlot) -> LostAttempts:
        """The attempt of its assignment is lost: if the call arrives after all, the service refuses the lease."""
        logger.warning("slot %s did not get its assignment, because the connection to it broke", slot.name)
        slot.assigned = slot.starting = None
        return {slot.runs: False} if slot.runs else {}

    def _note_losses(self, slot: PooledSlot, status: SlotStatus) -> None:
        if status.lost_count > slot.lost_count:
            self._has_losses = True
            if status.bytes_without_room is not None:
                self._bytes_without_room = max(status.bytes_without_room, self._bytes_without_room or 0)
        slot.lost_count = status.lost_count

    def _note_failed_disks(self, slot: PooledSlot, status: SlotStatus) -> None:
        """Each failure counts once. An adopted slot says for how long its former agent still withheld the node."""
        for failed in status.failed_disks:
            if failed["number"] > slot.failed_disk_number:
                node, address, seconds = failed["node"], node_address(failed["node"]), failed["seconds"]
                logger.warning("node %s gets no new trial for %.0f s: %s", address, seconds, failed["reason"])
                self._withheld.add(node, storable_text(f"node {address}: {failed['reason']}", MAX_REASON), seconds)
        numbers = (failed["number"] for failed in status.failed_disks)
        slot.failed_disk_number = max(numbers, default=slot.failed_disk_number)

    def _tell_withheld(self, slot: PooledSlot) -> None:
        """Ray chooses the nodes of an attempt, by what its slot asks for. One of an earlier version asks for any."""
        nodes = self._withheld.seconds_left()
        if nodes and slot.withheld_version != self._withheld.version and hasattr(slot.actor, "withhold"):
            slot.actor.withhold.remote(nodes)
        slot.withheld_version = self._withheld.version

    def _remove_dead(self, slot: PooledSlot, how: str) -> LostAttempts:
        """The slot is killed as well: one that is only out of reach must not go on without an agent."""
        logger.warning("slot %s %s", slot.name, how)
        self.slots.pop(slot.name, None)
        self._has_losses = True
        ray.kill(slot.actor)
        self._orphan_search_until = time.monotonic() + ORPHAN_SEARCH_SECONDS
        return {slot.runs: slot.began} if slot.runs else {}

    def _remove_orphaned_groups(self) -> None:
        """Free what dead slots reserved, also those whose last status did not name a placement group yet."""
        now = time.monotonic()
        if self._orphan_search_at <= now < self._orphan_search_until:
            self._orphan_search_at = now + ORPHAN_SEARCH_INTERVAL_SECONDS
            for group in orphaned_placement_groups():
                logger.info("removing placement group %s of a dead slot", group)
                remove_group(group)

    def _forward_drains(self) -> None:
        """Announce each drained node to each slot, again if the call was lost."""
        now = time.monotonic()
        if now >= self._drain_check_at:
            self._draining, self._drain_check_at = draining_nodes(), now + DRAIN_CHECK_SECONDS
        for slot in self.slots.values():
            new = {node for node in self._draining if slot.must_be_told_of_drain(node)}
            if new:
                seconds = min(self._draining[node] for node in new) - DRAIN_MARGIN_SECONDS
                call = slot.actor.drain.remote(sorted(new), max(0.0, min(seconds, MAX_GRACE_SECONDS)))
                slot.drain_calls |= dict.fromkeys(new, call)

    def leases_to_extend(self) -> list[dict[str, Any]]:
        """Assignments that their slots have not begun to execute, and whose leases are due to be extended.

        A slot extends its lease itself, but cannot do so while its process starts.
        """
        now, due = time.monotonic(), []
        for slot in self.slots.values():
            if slot.starting is not None and now >= slot.lease_due_at:
                slot.lease_due_at = now + float(slot.starting["lease"]["seconds"]) / 3
                due.append(slot.starting)
        return due

    def offer(self) -> NodeOffer:
        """What the cluster has for new trials, by the state of the slots at each of its calls; labels are read once."""
        return NodeOffer(self.slots.values(), self._draining, self._withheld)

    def should_wait(self, assignment: dict[str, Any], since: float) -> bool:
        """Whether a busy slot with the assignment's key may become idle soon, and no such slot is idle now.

        A slot may if it is between two attempts, or if its last status is older than `since`.
        """
        key = slot_key(assignment)
        same = [s for s in self.slots.values() if s.key == key and s.assigned is None and not s.is_closing]
        return not any(s.is_idle for s in same) and any(s.status_at < since or not s.is_settled for s in same)

    def run(self, assignment: dict[str, Any], secrets: Mapping[str, str]) -> None:
        """Run it on an idle slot with its key, or on a new one. Other idle slots make room for what it reserves."""
        key = slot_key(assignment)
        slot = next((slot for slot in self.slots.values() if slot.is_idle and slot.key == key), None)
        if slot is None:
            slot = self._start(assignment, key)
        elif not self.offer().may_stay(slot):
            slot.placement_group = None
            self._make_room(assignment["trainer"]["scaling"], keep=slot)
        slot.runs, slot.began, slot.idle_seconds = (assignment["trial"], assignment["attempt"]), False, None
        self._tell_withheld(slot)
        more = [dict(secrets)] if secrets else []  # a slot of an earlier version takes none
        slot.assigned = slot.actor.run.remote(assignment, key, slot.scaling, *more), assignment
        slot.starting, slot.secrets = assignment, secrets
        slot.assigned_count, slot.call_lost_at = slot.assigned_count + 1, None
        self.prestart.pause()

    def _start(self, assignment: dict[str, Any], key: str) -> PooledSlot:
        scaling = assignment["trainer"]["scaling"]
        self._make_room(scaling)
        node = self._node_for_slot(scaling)
        # Workers inherit the slot's environment, and those of the fork server have its Python.
        is_plain = bool(self._runtime_env and assignment["trainer"].get("runtime_env"))
        runtime_env = {} if is_plain else self._runtime_env
        spare = None if is_plain else self._spare.take(node)
        name, actor = spare or start_slot(self._prefix, node, self._addresses, runtime_env)
        self.slots[name] = PooledSlot(name, actor, key, scaling)
        logger.info("slot %s starts for experiment %s", name, assignment["experiment"])
        return self.slots[name]

    def _node_for_slot(self, scaling: Scaling) -> str | None:
        """The node that its first worker will probably get; for an elastic group, the agent's own node.

        So the slot depends on no other node than its workers, and slots spread as their work does. An elastic group
        loses nodes and goes on, so its slot must not be on one of them; the agent's own is the last to go. The slot
        itself needs room on its node, for the package.
        """
        own = str(ray.get_runtime_context().get_node_id())
        if WorkerGroup.of(scaling).is_elastic and own not in self._draining and own not in self._withheld:
            return own
        placement = self.offer().placement(scaling)
        return placement.nodes[0] if placement else None

    def _make_room(self, scaling: Scaling, keep: PooledSlot | None = None) -> None:
        """Close idle slots, longest idle first, until the worker group fits; those that remove checkpoints last."""
        idle = [slot for slot in self.slots.values() if slot.is_idle and slot is not keep]
        idle.sort(key=lambda slot: (slot.is_removing, -(slot.idle_seconds or 0)))
        offer = self.offer()
        for slot in idle:
            if offer.placement(scaling) is not None:
                return
            self.close([slot])

    def close_idle(self, seconds: float) -> None:
        """Close the slots that have been idle for longer, and have no checkpoints to remove."""
        idle = [slot for slot in self.slots.values() if slot.is_idle and not slot.is_removing]
        self.close([slot for slot in idle if (slot.idle_seconds or 0) > seconds])

    def close_all(self) -> None:
        self._spare.close()
        self.close(list(self.slots.values()))

    def close(self, slots: list[PooledSlot]) -> None:
        """End these slots; they give back to the service what they run."""
        calls = [slot.actor.close.remote() for slot in slots]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=CLOSE_SECONDS)
        for slot in slots:
            ray.kill(slot.actor)
            self.slots.pop(slot.name, None)
            logger.info("slot %s closed", slot.name)
