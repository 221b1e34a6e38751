"""The loop that keeps a few idle worker processes on each node, so that a worker group need not wait for processes.

Such a process has imported torch and Ray Train and has run nothing yet. Ray ends it with the agent's job, also when the
agent is killed.
"""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil

from trainer.agent.cluster import raylets
from trainer.ray_train.processes.idle_workers import IdleWorkers

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
CALM_SECONDS = 2.0
"""How long no slot may have started a worker group: it has a better use for the processors."""

BUSY_SECONDS = 10.0
"""How long a missing process waits for a processor without other work."""

IDLE_CORES = 0.5

START_SECONDS = 30.0
"""How long a process may take to start. The first one on a node waits until the fork server has imported everything."""

STOP_SECONDS = 1.0
ERROR_SECONDS = 60.0
"""How long nothing is started after an error: Ray's head may be away."""

GIBIBYTE = 2**30


@dataclass
class PrestartNode:
    """`known`: the job's processes when the last one was started, at `started_at`. `answers`: its raylet, last time."""

    workers: IdleWorkers
    wanted: int
    known: frozenset[int] = frozenset()
    started_at: float | None = None
    missing_since: float | None = None
    answers: bool = True

    def starts_one(self, workers: frozenset[int], now: float) -> bool:
        """Whether a process that was asked for may still be starting."""
        if self.started_at is not None and (workers - self.known or now > self.started_at + START_SECONDS):
            self.started_at = None
        return self.started_at is not None


@dataclass
class PrestartLoop:
    """`count`: the processes for each node, of which each takes about 30 MB; at most one for each GiB of its memory."""

    count: int
    runtime_env: dict[str, Any]
    nodes: dict[str, PrestartNode] = field(default_factory=dict)
    _busy_until: float = 0.0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        if self.count:
            self._thread = threading.Thread(target=self._run, name="paceline-prestart", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Does not end the processes: Ray does, when this process leaves it. Waits for no node that does not answer."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def pause(self) -> None:
        """A slot is starting a worker group."""
        self._busy_until = time.monotonic() + CALM_SECONDS

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS if self.nodes else 0):
            try:
                self.run_once()
            except Exception:
                logger.exception("no worker processes are prestarted for %g s after an error", ERROR_SECONDS)
                self._stopped.wait(ERROR_SECONDS)
        for node in self.nodes.values():
            node.workers.close()

    def run_once(self) -> int:
        """Start what is missing, at most one process on each node; returns the number of starts."""
        idle_cores = (psutil.cpu_count() or 1) * (1 - psutil.cpu_percent() / 100)
        self._find_nodes()
        return sum(self._top_up(name, idle_cores=idle_cores) for name in list(self.nodes))

    def _find_nodes(self) -> None:
        found = raylets()
        for name in self.nodes.keys() - found.keys():
            self.nodes.pop(name).workers.close()
        for name in found.keys() - self.nodes.keys():
            wanted = min(self.count, int(found[name].memory / GIBIBYTE))
            self.nodes[name] = PrestartNode(IdleWorkers(found[name].address, self.runtime_env), wanted)

    def _top_up(self, name: str, *, idle_cores: float) -> bool:
        node, now = self.nodes[name], time.monotonic()
        try:
            workers = node.workers.find()
            node.answers = True
            if node.starts_one(workers.all, now):
                return False
            if len(workers.unused) >= node.wanted:
                node.missing_since = None
                return False
            if not self._is_calm(node, now, idle_cores=idle_cores):
                return False
            node.workers.start_one()
        except grpc.RpcError as error:
            if node.answers:  # it may be away for minutes, and is asked every second
                logger.info("the raylet of node %s does not answer: %s", name, error.code())
            node.answers = False
            return False
        node.known, node.started_at, node.missing_since = workers.all, now, None
        return True

    def _is_calm(self, node: PrestartNode, now: float, *, idle_cores: float) -> bool:
        node.missing_since = node.missing_since or now
        return now > self._busy_until and (idle_cores >= IDLE_CORES or now > node.missing_since + BUSY_SECONDS)
