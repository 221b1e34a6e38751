"""A slot that starts before anybody needs it, so that the first trial finds its process with all imports done."""

import logging
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from trainer.agent.cluster import start_slot, total_resources

logger = logging.getLogger(__name__)


@dataclass
class SpareSlot:
    """`asked`: what it was asked last, so that it knows of an agent and does not close itself."""

    name: str
    node: str
    actor: Any
    asked: Any = None

    def is_alive(self) -> bool:
        """False once its death is known; without waiting."""
        try:
            if self.asked is not None and ray.wait([self.asked], timeout=0)[0]:
                ray.get(self.asked)
                self.asked = None
        except RayError as error:
            logger.info("the spare slot %s has died: %s", self.name, error)
            return False
        self.asked = self.asked or self.actor.status.remote()
        return True


class Spare:
    """At most one, and none unless it is `wanted`. The next is not started before the fleet has used it and is idle."""

    def __init__(self, prefix: str, service_url: str, *, wanted: bool) -> None:
        self._prefix = prefix
        self._url = service_url
        self._slot: SpareSlot | None = None
        self._wanted = self._due = wanted

    def look_after(self, *, idle: bool) -> None:
        """Called again and again. `idle`: the fleet has no slots."""
        if self._slot is not None and not self._slot.is_alive():
            self._slot = None
        if self._due and idle:
            self._due, self._slot = False, self._start()

    def take(self, node: str | None) -> tuple[str, Any] | None:
        """Name and actor of the one on that node (None: any), if there is one. It is nobody's spare then."""
        self._due = self._wanted
        if self._slot is None or node not in (None, self._slot.node):
            return None
        taken, self._slot = self._slot, None
        return taken.name, taken.actor

    def close(self) -> None:
        if self._slot is not None:
            ray.kill(self._slot.actor)
            self._slot = None

    def _start(self) -> SpareSlot:
        """Where there is most to run on."""
        nodes = total_resources()
        node = max(nodes, key=lambda node: (nodes[node].get("GPU", 0), nodes[node].get("CPU", 0), node))
        name, actor = start_slot(self._prefix, node, self._url, spare=True)
        logger.info("slot %s starts before there is work for it", name)
        return SpareSlot(name, node, actor)
