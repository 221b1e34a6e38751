"""The slots of one agent: started, adopted, watched and closed."""

import hashlib
import json
import logging
import uuid
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from trainer.cluster import Holdings, find_slots, free_resources, remove_group, start_slot, total_resources
from trainer.resources import Nodes, gang, place

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 4.0

Scaling = dict[str, Any]


def key_of(assignment: dict[str, Any]) -> str:
    """Assignments with the same key can run on the same slot: all but the function's name must be the same."""
    trainer = {name: value for name, value in assignment["trainer"].items() if name != "entrypoint"}
    shape = json.dumps([assignment["experiment_id"], trainer], sort_keys=True)
    return hashlib.sha256(shape.encode()).hexdigest()[:16]


@dataclass
class Member:
    """A slot as the agent knows it: its handle and what it said last."""

    name: str
    actor: Any
    key: str
    scaling: Scaling
    trial: str | None = None
    lease: str | None = None
    idle_seconds: float | None = None
    placement_group: str | None = None
    asked: Any = None
    given: tuple[Any, dict[str, Any]] | None = None
    given_count: int = 0

    @property
    def idle(self) -> bool:
        return self.idle_seconds is not None and self.given is None


@dataclass(frozen=True)
class Loss:
    """A trial whose slot died, with the lease that still may be used to say so."""

    trial: str
    lease: str


class Fleet:
    def __init__(self, agent: str, service_url: str) -> None:
        self._prefix = f"slot.{agent}."
        self._url = service_url
        self.members: dict[str, Member] = {}

    def adopt(self) -> None:
        """Take over the slots that a former agent of this name left running."""
        for name, actor in find_slots(self._prefix).items():
            try:
                status = ray.get(actor.status.remote(), timeout=CLOSE_SECONDS)
            except (RayActorError, GetTimeoutError) as error:
                logger.warning("slot %s does not answer and is ended: %s", name, error)
                ray.kill(actor)
                continue
            logger.info("adopted slot %s, running %s", name, status["trial"] or "nothing")
            self.members[name] = Member(
                name, actor, status["key"], status["scaling"], given_count=status["given_count"]
            )
            self._told(self.members[name], status)

    def refresh(self) -> list[Loss]:
        """Ask every slot how it is, without waiting; returns what those that have died were running."""
        for member in self.members.values():
            member.asked = member.asked or member.actor.status.remote()
        refs = [member.asked for member in self.members.values()]
        answered = set(ray.wait(refs, num_returns=len(refs), timeout=0.2)[0]) if refs else set()
        losses = []
        for member in [m for m in self.members.values() if m.asked is not None and m.asked in answered]:
            try:
                self._told(member, ray.get(member.asked))
            except RayActorError as error:
                losses += self._dead(member, error)
            member.asked = None
        return losses

    def _told(self, member: Member, status: dict[str, Any]) -> None:
        if status["given_count"] < member.given_count:
            return  # it said so before it heard of its assignment
        if member.given is not None:
            (ref, assignment), member.given = member.given, None
            if not ray.get(ref):  # it was about to close itself
                self.take(assignment)
        member.trial, member.lease = status["trial"], status["lease"]
        member.idle_seconds = status["idle_seconds"]
        member.placement_group = status["placement_group"]
        if status["closing"]:
            self.members.pop(member.name, None)

    def _dead(self, member: Member, error: RayActorError) -> list[Loss]:
        logger.warning("slot %s died: %s", member.name, str(error).splitlines()[0])
        del self.members[member.name]
        if Holdings().of(member.placement_group):
            remove_group(str(member.placement_group))
        return [Loss(member.trial, member.lease)] if member.trial and member.lease else []

    def offer(self) -> list[dict[str, Any]]:
        """Each node with its resources in total and free, idle slots' counted as free."""
        free = self._free()
        return [{"total": total, "free": free.get(node, {})} for node, total in total_resources().items()]

    def _free(self) -> Nodes:
        holdings, free = Holdings(), free_resources()
        for member in self.members.values():
            if member.idle:
                holdings.give_back(member.placement_group, free)
            elif holdings.of(member.placement_group) is None:  # it is about to take its part
                free = place(gang(member.scaling), free) or free
        return {node: {name: max(0.0, amount) for name, amount in amounts.items()} for node, amounts in free.items()}

    def take(self, assignment: dict[str, Any]) -> None:
        """Run it on an idle slot of its kind, or on a new one, for which others make room."""
        key = key_of(assignment)
        member = next((m for m in self.members.values() if m.idle and m.key == key), None) or self._start(
            assignment, key
        )
        member.trial, member.lease, member.idle_seconds = assignment["trial"], assignment["lease"]["token"], None
        member.given = member.actor.run.remote(assignment), assignment
        member.given_count += 1

    def _start(self, assignment: dict[str, Any], key: str) -> Member:
        scaling = assignment["trainer"]["scaling"]
        self._make_room(scaling)
        name = f"{self._prefix}{uuid.uuid4().hex[:8]}"
        actor = start_slot(name, self._url, name, key, scaling)
        self.members[name] = Member(name, actor, key, scaling)
        logger.info("slot %s starts for experiment %s", name, assignment["experiment"])
        return self.members[name]

    def _make_room(self, scaling: Scaling) -> None:
        """Close idle slots, longest idle first, until the gang fits."""
        idle = sorted((m for m in self.members.values() if m.idle), key=lambda m: -(m.idle_seconds or 0))
        for member in idle:
            if place(gang(scaling), free_resources()) is not None:
                return
            self.close([member])

    def close_idle(self, seconds: float) -> None:
        self.close([m for m in self.members.values() if m.idle and (m.idle_seconds or 0) > seconds])

    def close(self, members: list[Member]) -> None:
        """End these slots; what they run is given back to the service."""
        refs = [member.actor.close.remote() for member in members]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_SECONDS)
        for member in members:
            ray.kill(member.actor)
            self.members.pop(member.name, None)
            logger.info("slot %s closed", member.name)
