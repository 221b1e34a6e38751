"""What the ranks of an attempt have reported about themselves."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ray.exceptions import RayActorError, RayError

from trainer.worker.failures import Failure
from trainer.worker.messages import WorkerEnded, WorkerStarted
from trainer.worker.process_end.own_end import OwnEnd

ALIVE_SECONDS = 10.0
"""A living worker answers within milliseconds, unless native code holds its interpreter. A death is known
after seconds on a busy node; until then a kill would count as the user's error."""

SendLog = Callable[[int, int, str], None]
"""Gets a rank, the offset of its output in bytes, and the output."""

Remains = tuple[str, int | None, OwnEnd | None]
"""The unsent rest of a dead rank's log, the present count of its OOM counter, and how it has ended itself."""


class Ranks:
    """Written by the slot's event loop, and read by the slot's thread once no worker runs.

    `world_size` of an elastic group is known when it starts. `lost_nodes` are those that Ray does not reach,
    and `late_nodes` those that have not answered in time.

    Ray may deliver output of a rank after its death, while the slot's thread reads what the rank has left in its files.
    Such output is ignored, because the files have it.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.started: dict[int, WorkerStarted] = {}
        self.ended: dict[int, WorkerEnded] = {}
        self._failures: dict[int, Failure] = {}
        self.dead: set[int] = set()
        self.lost_nodes: set[str] = set()
        self.late_nodes: set[str] = set()
        self.times: dict[int, dict[str, float]] = {}
        self.has_oom_kill = False
        self.own_ends: dict[int, OwnEnd] = {}
        self.log_offsets: dict[int, int] = {}
        self.log_positions: dict[int, dict[str, int]] = {}
        self._log_lock = threading.Lock()
        self._remains_taken: set[int] = set()
        self._early_logs: defaultdict[int, dict[int, tuple[str, dict[str, int]]]] = defaultdict(dict)
        self._oom_kills: dict[int, int] = {}

    @property
    def have_all_started(self) -> bool:
        return len(self.started) == self.world_size

    def by_node(self, nodes: Iterable[str]) -> dict[str, list[int]]:
        """The ranks that have started on these nodes."""
        started = sorted(self.started.items())
        return {node: [rank for rank, one in started if one.node == node] for node in nodes}

    @property
    def have_all_ended(self) -> bool:
        return len(self.ended) == self.world_size

    @property
    def have_stopped(self) -> bool:
        """Whether any rank left at a report because the attempt was to stop."""
        return any(ended.has_stopped for ended in self.ended.values())

    @property
    def failures(self) -> dict[int, Failure]:
        """The failures of the ranks, the first one first; of a rank that has failed in the background, that failure."""
        return dict(self._failures)

    @property
    def bytes_without_room(self) -> int | None:
        """The size of the checkpoint for which the storage had no room, as far as the ranks know it."""
        sizes = [one.bytes_without_room for one in self._failures.values() if one.bytes_without_room is not None]
        return sum(sizes) if sizes else None

    @property
    def failed_disks(self) -> dict[str, str]:
        """The nodes whose disk is full or fails, by what ranks there say, with the failure's message."""
        failed = [(rank, one) for rank, one in self.failures.items() if one.is_of_node_disk and rank in self.started]
        return {self.started[rank].node: one.message for rank, one in failed}

    def add_background_failure(self, rank: int, failure: Failure) -> None:
        """An upload of the rank has failed, whose function may still train. The function's end says less."""
        self._failures.setdefault(rank, failure)

    @property
    def returned(self) -> set[int]:
        """The ranks whose function has returned by itself, without a failure."""
        return {rank for rank, ended in self.ended.items() if ended.failure is None and not ended.has_stopped}

    @property
    def silent(self) -> list[int]:
        """The ranks that have started and not reported their end."""
        return sorted(self.started.keys() - self.ended.keys())

    def gpus_beside(self, rank: int) -> set[str]:
        """The GPUs that the workers on this rank's node may use."""
        node = self.started[rank].node
        return {gpu for started in self.started.values() if started.node == node for gpu in started.gpus}

    def add_started(self, rank: int, started: WorkerStarted) -> None:
        """The rank's message may come late, and again."""
        self.started[rank] = started
        self.log_positions.setdefault(rank, started.log_positions)
        self.survived_oom_kills(rank, started.oom_kills)

    def survived_oom_kills(self, rank: int, kills: int | None) -> None:
        """The rank is alive after this many kills, so none of them was its own. An earlier count may come later."""
        self._oom_kills[rank] = max(self._oom_kills.get(rank, 0), kills or 0)

    def add_log(self, rank: int, offset: int, text: str, positions: dict[str, int], send: SendLog) -> None:
        """Send output of the rank from `offset` on, in its order: Ray may run a later call before an earlier one.

        Ray also repeats a call that may have been lost, so the same output may come twice.
        """
        with self._log_lock:
            if rank in self._remains_taken or offset < self.log_offsets.get(rank, 0):
                return
            early = self._early_logs[rank]
            early[offset] = text, positions
            while (offset := self.log_offsets.get(rank, 0)) in early:
                self._send_early(rank, offset, send)

    def end_of_log(self, rank: int, send: SendLog) -> int:
        """The offset from which a new process, or a note, goes on with the rank's output.

        What an earlier one has sent after output that died with it is sent before: the service notes what is missing.
        """
        with self._log_lock:
            for offset in sorted(self._early_logs[rank]):
                self._send_early(rank, offset, send)
            return self.log_offsets.get(rank, 0)

    def _send_early(self, rank: int, offset: int, send: SendLog) -> None:
        text, self.log_positions[rank] = self._early_logs[rank].pop(offset)
        self.log_offsets[rank] = offset + len(text.encode())
        send(rank, offset, text)

    def add_times(self, rank: int, times: dict[str, float]) -> None:
        """The newest fields of the rank's `PhaseTimes`."""
        if rank not in self.ended:
            self.times[rank] = times

    def add_ended(self, rank: int, ended: WorkerEnded) -> None:
        self.add_times(rank, ended.times)
        self.ended[rank] = ended
        if ended.failure is not None:
            self._failures.setdefault(rank, ended.failure)

    async def find_dead(self, group: Mapping[int, Any]) -> None:
        """A rank that fails may only have noticed, in a collective, that another one has died.

        `group` has the actors of all ranks, as far as they are known: one may have died before it told that it starts.
        """
        actors = {**group, **{rank: started.actor for rank, started in self.started.items()}}
        others = sorted(actors.keys() - self.ended.keys())
        answers = await asyncio.gather(*(_is_alive(actors[rank]) for rank in others))
        self.dead |= {rank for rank, is_alive in zip(others, answers, strict=True) if not is_alive}

    def take_remains(self, read: Callable[[int], Remains], send: SendLog) -> None:
        """Send the rest of the logs of the silent ranks, and note which have ended themselves or died for memory.

        `read` is called in several threads, for the ranks of one node in the same.
        """
        silent = self.silent
        with self._log_lock:
            self._remains_taken.update(silent)
        remains = self._read_by_node(silent, read)
        for rank in silent:
            text, oom_kills, own_end = remains[rank]
            if own_end is not None:
                self.own_ends[rank] = own_end
            if text:
                send(rank, self.log_offsets.get(rank, 0), text)
            self.has_oom_kill |= (oom_kills or 0) > self._oom_kills.get(rank, 0)

    def _read_by_node(self, ranks: Iterable[int], read: Callable[[int], Remains]) -> dict[int, Remains]:
        """Read on all nodes at the same time: each may be slow, and a slot that is being closed has little time."""
        nodes: defaultdict[str, list[int]] = defaultdict(list)
        for rank in ranks:
            nodes[self.started[rank].node].append(rank)

        def read_in_turn(own: list[int]) -> dict[int, Remains]:
            return {rank: read(rank) for rank in own}

        with ThreadPoolExecutor(len(nodes) or 1, thread_name_prefix="paceline-remains") as threads:
            found = threads.map(read_in_turn, nodes.values())
            return {rank: remains for part in found for rank, remains in part.items()}

    def why_not_reusable(self) -> str | None:
        """Why the worker processes cannot serve another attempt, if they cannot."""
        if not self.have_all_ended:
            return f"only {len(self.ended)} of {self.world_size} workers reported their end"
        reasons = (ended.not_reusable for ended in self.ended.values() if ended.not_reusable is not None)
        return next(reasons, "the training function failed" if self.failures else None)


async def _is_alive(actor: Any) -> bool:
    try:
        await asyncio.wait_for(actor.__ray_ready__.remote(), ALIVE_SECONDS)
    except RayActorError:
        return False
    except (TimeoutError, RayError):
        return True  # it is busy, or Ray does not answer; a dead one is known to be dead within this time
    return True
