"""A slot that starts before there is work for it, so that the first trial finds a process with all imports done."""

import logging
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from trainer.agent.cluster import start_slot, total_resources
from trainer.client.addresses import ServiceAddresses

logger = logging.getLogger(__name__)


@dataclass
class _StartedSlot:
    """`status`: the ObjectRef of the last status call. Without such calls the slot would close itself."""

    name: str
    node: str
    actor: Any
    status: Any = None

    def is_alive(self) -> bool:
        """False once its death is known. Does not wait."""
        try:
            if self.status is not None and ray.wait([self.status], timeout=0)[0]:
                ray.get(self.status)
                self.status = None
        except RayError as error:
            logger.info("the spare slot %s has died: %s", self.name, error)
            return False
        self.status = self.status or self.actor.status.remote()
        return True


class SpareSlot:
    """At most one, if `is_wanted`. The next one starts once the pool has used this one and is empty again."""

    def __init__(
        self, prefix: str, addresses: ServiceAddresses, runtime_env: dict[str, Any], *, is_wanted: bool
    ) -> None:
        self._prefix = prefix
        self._addresses = addresses
        self._runtime_env = runtime_env
        self._slot: _StartedSlot | None = None
        self._is_wanted = self._is_due = is_wanted

    def refresh(self, *, pool_is_empty: bool) -> None:
        """Start it when it is due, and notice its death. To be called regularly."""
        if self._slot is not None and not self._slot.is_alive():
            self._slot = None
        if self._is_due and pool_is_empty:
            self._is_due, self._slot = False, self._start()

    def take(self, node: str | None) -> tuple[str, Any] | None:
        """The name and the handle of the spare slot on that node (None: on any), which then belongs to the caller."""
        if self._slot is not None and node not in (None, self._slot.node):
            return None
        taken, self._slot = self._slot, None
        self._is_due = self._is_wanted
        return None if taken is None else (taken.name, taken.actor)

    def close(self) -> None:
        if self._slot is not None:
            ray.kill(self._slot.actor)
            self._slot = None

    def _start(self) -> _StartedSlot:
        """On the node with the most GPUs, then CPUs."""
        nodes = total_resources()
        node = max(nodes, key=lambda node: (nodes[node].get("GPU", 0), nodes[node].get("CPU", 0), node))
        name, actor = start_slot(self._prefix, node, self._addresses, self._runtime_env, spare=True)
        logger.info("slot %s starts before there is work for it", name)
        return _StartedSlot(name, node, actor)
