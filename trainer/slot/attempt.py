"""One attempt in the slot: what its workers say, what the service says, and how it ends."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayActorError

from trainer.client.heartbeat import Heartbeat
from trainer.client.http import (
    CallRefused,
    LeaseLost,
    ServiceClient,
    ServiceFailed,
    ServiceUnreachable,
    post_until_answered,
)
from trainer.client.outbox import LogOutbox, ReportOutbox
from trainer.ray_train.runners import Runner
from trainer.slot.report_barrier import STOP, ReportBarrier
from trainer.worker.failures import (
    LOST,
    OUT_OF_MEMORY,
    PREEMPTED,
    USER_ERROR,
    as_sent,
    classify,
    headline,
    killed_by_kernel,
    user_traceback,
)

logger = logging.getLogger("paceline")

# How long the other ranks get to say what happened to them after one rank has failed.
OTHER_RANKS_SECONDS = 0.5
GIVE_BACK_SECONDS = 3.0
# How long the end of an attempt waits for the last of its logs, which the service may be unable to write.
LOGS_SECONDS = 5.0
# A living worker answers within milliseconds; one whose interpreter is held by native code may not.
ALIVE_SECONDS = 2.0
AGENT_SHUT_DOWN = "the agent was shut down and gave the attempt back"
ENDED_AT_ONCE = ("kill", "refused", "preempted", "abandoned", "lease-lost")


class Attempt:
    """Methods with `async` run in the slot's event loop, the others in any thread.

    `ending`: why it is being ended from outside, if it is: `stop`, `drain`, `kill`, `refused`, `preempted`, `abandoned`
    or `lease-lost`. `discard(checkpoint)` gets each of its checkpoints that is needed no more.
    """

    def __init__(
        self,
        assignment: dict[str, Any],
        url: str,
        loop: asyncio.AbstractEventLoop,
        runs: Runner,
        discard: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.run: str = assignment["run_name"]
        self.ending: str | None = None
        self.drained = False
        self._undelivered: dict[str, Any] | None = None
        self.members: dict[int, dict[str, Any]] = {}
        self.ends: dict[int, dict[str, Any]] = {}
        self.log_offsets: dict[int, int] = {}
        self.over = threading.Event()
        self._dead: set[int] = set()
        self._kernel_killed = False
        self._world_size: int = assignment["trainer"]["scaling"]["num_workers"]
        self._loop = loop
        self._runs = runs
        self._trial: str = assignment["trial"]
        token = assignment["lease"]["token"]
        self.service = ServiceClient(url, token)
        self._reports = ReportOutbox(
            ServiceClient(url, token), self._trial, self._decided, self.lose, self._refused, self._known
        )
        self._discard = discard
        # Those of earlier attempts first, which are the first to go.
        self._earlier = set(assignment.get("earlier_checkpoints", []))
        self._checkpoints: list[str] = list(assignment.get("earlier_checkpoints", []))
        self._earlier_runs: list[str] = list(assignment.get("earlier_runs", []))
        self._logs = LogOutbox(ServiceClient(url, token), self._trial, self.lose)
        self._rounds = ReportBarrier(self._deliver, lambda _sequence: runs.wake())
        seconds = float(assignment["lease"]["seconds"])
        self._heartbeat = Heartbeat(ServiceClient(url, token), self._trial, seconds, self._ordered, self.lose)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending_lock = threading.Lock()

    @property
    def ended_at_once(self) -> bool:
        return self.ending in ENDED_AT_ONCE

    def start(self) -> None:
        for thread in (self._reports, self._logs, self._heartbeat):
            thread.start()
        if limit := self.assignment.get("max_seconds"):
            self._later("time limit", limit, self.stop, f"max_trial_seconds: {limit:g} seconds are over")

    # What the workers say.

    async def joined(self, rank: int, member: dict[str, Any]) -> None:
        self.members[rank] = member
        self._runs.joined(member["actor"])
        if self.ended_at_once:
            self._runs.end_workers()

    async def counted(self, rank: int, oom_kills: int | None) -> None:
        """A rank lives after as many kills for memory: none of these was its own."""
        if rank in self.members:
            self.members[rank]["oom_kills"] = oom_kills

    async def answer(self, *report: Any) -> str:
        return await self._rounds.answer(*report)

    async def log(self, rank: int, offset: int, text: str, positions: dict[str, int]) -> None:
        self.log_offsets[rank] = offset + len(text.encode())
        if rank in self.members:
            self.members[rank]["positions"] = positions
        self._logs.put(rank, offset, text)

    async def ended(self, rank: int, end: dict[str, Any]) -> None:
        self.ends[rank] = end
        if len(self.ends) == self._world_size:
            self._runs.wake(ending=True)
        elif end["failure"] is not None:
            await self._look_for_dead_ranks()
            # The others may wait for this rank for ever.
            self._loop.call_later(OTHER_RANKS_SECONDS, self._end_workers_unless_over)

    async def _look_for_dead_ranks(self) -> None:
        """A rank that fails may only have noticed that another has died: in a collective, that comes first."""
        missing = {rank: member for rank, member in self.members.items() if rank not in self.ends}
        answers = await asyncio.gather(*(_lives(member["actor"]) for member in missing.values()))
        self._dead |= {rank for rank, lives in zip(missing, answers, strict=True) if not lives}

    def saved(self, sequence: int, path: str) -> None:
        self._reports.add_checkpoint(sequence, self.checkpoint_uri(path))

    def _known(self, checkpoint: str) -> None:
        """The service has this one: those before it that it need not keep may go. Until then none may."""
        if checkpoint in self._checkpoints:
            self._checkpoints.remove(checkpoint)
        self._checkpoints.append(checkpoint)
        while len(self._checkpoints) > int(self.assignment["keep_checkpoints"]):
            self._discard(self._checkpoints.pop(0))
        if self._earlier.isdisjoint(self._checkpoints):
            while self._earlier_runs:
                self._discard(self._uri(self._earlier_runs.pop()))

    def checkpoint_uri(self, path: str) -> str:
        """Where it is found from anywhere. `path` is that of Ray's filesystem, which has no scheme."""
        return self._uri(f"{self.run}/{path.rstrip('/').rpartition(f'/{self.run}/')[2]}")

    def kept(self) -> tuple[list[str], str] | None:
        """The names of its checkpoints that the service knows, and their folder, once it is concluded.

        None for one of which the service may know more, or come to know more.
        """
        untold = self._undelivered is not None and self._undelivered["kind"] == LOST
        if untold or self.ending in ("preempted", "abandoned", "lease-lost"):
            return None
        paths = [uri.partition("?")[0].rpartition(f"/{self.run}/")[2] for uri in self._checkpoints]
        return [path.partition("/")[0] for path in paths], self._uri(self.run)

    def _uri(self, name: str) -> str:
        folder, mark, query = str(self.assignment["storage_path"]).partition("?")
        return f"{folder.rstrip('/')}/{name}{mark}{query}"

    # What the service, the agent and the clock say.

    def stop(self, reason: str | None) -> None:
        """Leave at the next report; after the grace period, be killed."""
        if self.ending is None:
            logger.info("%s is to stop: %s", self.run, reason or "no reason given")
            self.ending = "stop"
            self._begin_grace()
            self._loop.call_soon_threadsafe(self._rounds.leave)

    def drain(self, seconds: float) -> None:
        """A node is taken away: leave at the next report, and be ended when `seconds` are over."""
        self.drained = True
        if self.ending is None:
            self.ending = "drain"
            self._loop.call_soon_threadsafe(self._rounds.leave)
        self._later("drain", seconds, self.end, "preempted" if self.ending == "drain" else "kill")

    def end(self, why: str) -> None:
        """End the workers at once, unless it is over. `why` is one of ENDED_AT_ONCE."""
        with self._ending_lock:  # once it is over, the workers may be those of the next attempt
            if self.over.is_set() or self.ending == "lease-lost":
                return
            logger.info("%s is ended at once: %s", self.run, why)
            self.ending = why
            self._runs.end_workers()
        self._loop.call_soon_threadsafe(self._rounds.leave)

    def lose(self) -> None:
        """The lease is lost: nothing of this attempt counts any more."""
        self.end("lease-lost")

    def _ordered(self, decision: str, reason: str | None) -> None:
        if decision == "kill":
            self.end("kill")
        else:
            self.stop(reason)

    def _refused(self, error: Exception) -> None:
        """The service cannot take what the function reports: that is to be mended, not to train on with."""
        self._undelivered = _undelivered(error)
        logger.error("%s is ended: %s", self.run, self._undelivered["message"])
        self.end("refused")

    def _decided(self, sequence: int, decision: str, reason: str | None) -> None:
        if decision == "kill":
            self.end("kill")
            return
        if decision == STOP:
            logger.info("%s is stopped at report %d: %s", self.run, sequence, reason)
            self._begin_grace()
        self._loop.call_soon_threadsafe(self._rounds.decide, sequence, decision)

    def _deliver(self, sequence: int, metrics: dict[str, Any], checkpoint: str | None) -> None:
        self._reports.put(sequence, metrics, None if checkpoint is None else self.checkpoint_uri(checkpoint))

    def _end_workers_unless_over(self) -> None:
        if not self.over.is_set():
            self._runs.end_workers()

    def _begin_grace(self) -> None:
        self._later("grace period", float(self.assignment["stop_grace_seconds"]), self.end, "kill")

    def _later(self, name: str, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call it in so many seconds, unless it is over by then or a timer of this name runs already."""

        def start() -> None:
            if not self.over.is_set() and name not in self._timers:
                self._timers[name] = self._loop.call_later(seconds, call, *arguments)

        self._loop.call_soon_threadsafe(start)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    # The end.

    @property
    def reset_failure(self) -> str | None:
        """Why its worker processes may not serve another attempt, if they may not."""
        if self.ending not in (None, "stop"):
            return f"the attempt was ended ({self.ending})"
        if len(self.ends) < self._world_size:
            return f"only {len(self.ends)} of {self._world_size} workers came to an end"
        return next(
            (e["reset_failure"] or "it failed" for e in self.ends.values() if e["failure"] or e["reset_failure"]), None
        )

    def conclude(
        self, error: BaseException | None, last_words: Callable[[int], tuple[str, int | None]]
    ) -> dict[str, Any] | None:
        """Deliver everything and say how it ended: the body of `finish`, or None when the lease is lost.

        `last_words(rank)` gives the end of the log of a rank that can't ship it any more, and how often the kernel has
        killed for memory there.
        """
        for rank in sorted(set(self.members) - set(self.ends)):
            text, oom_kills = last_words(rank)
            if text:
                self._logs.put(rank, self.log_offsets.get(rank, 0), text)
            self._kernel_killed |= (oom_kills or 0) > (self.members[rank]["oom_kills"] or 0)
        self._reports.flush(GIVE_BACK_SECONDS if self.ending == "preempted" else None)
        self._logs.flush(LOGS_SECONDS)
        self._close()
        return None if self.ending == "lease-lost" else self._outcome(error)

    def abandon(self, error: Exception) -> None:
        """End it as lost, delivering nothing more: what ran it has failed."""
        self._close()
        if self.ending != "lease-lost":
            self.ending = "abandoned"
            failure = {
                "kind": LOST,
                "message": f"the slot failed: {headline(error)}",
                "traceback": user_traceback(error),
            }
            self.finish(self.failed(failure))

    def _close(self) -> None:
        with self._ending_lock:
            self.over.set()
        self._heartbeat.close()
        self._reports.close()
        self._logs.close()
        self._loop.call_soon_threadsafe(self._cancel_timers)

    def finish(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Tell the service; returns the next assignment, if it gave one."""
        if "error" in body:
            body = {**body, "error": as_sent(body["error"])}
        given_up = threading.Event()
        if self.ending in ("preempted", "abandoned"):
            threading.Timer(GIVE_BACK_SECONDS, given_up.set).start()
        try:
            answer = post_until_answered(self.service, f"/v1/trials/{self._trial}/finish", body, given_up)
        except (LeaseLost, CallRefused, ServiceUnreachable) as error:
            logger.warning("%s could not be finished: %s", self.run, error)
            return None
        found: dict[str, Any] | None = (answer or {}).get("next")
        return found

    def _outcome(self, error: BaseException | None) -> dict[str, Any]:
        given_up = self._given_up()
        if given_up is not None:
            return self.failed(given_up)
        if self.ending == "kill" or any(end["left"] for end in self.ends.values()):
            return {"outcome": "stopped"}
        failure = self._failure(error)
        if failure is not None and failure["kind"] == LOST and self.drained:
            failure = {**failure, "kind": PREEMPTED}
        return {"outcome": "completed"} if failure is None else self.failed(failure)

    def failed(self, failure: dict[str, Any]) -> dict[str, Any]:
        """The body of `finish` that says so."""
        return {"outcome": "failed", "error": {**failure, "began": bool(self.members)}}

    def _given_up(self) -> dict[str, Any] | None:
        left = any(end["left"] for end in self.ends.values())
        if self.ending == "preempted" or (self.ending == "drain" and left):
            how = "left at a report" if left else "was ended"
            why = f"a node was being taken away, and the attempt {how}" if self.drained else AGENT_SHUT_DOWN
            return {"kind": PREEMPTED, "message": why}
        return self._undelivered

    def _failure(self, error: BaseException | None) -> dict[str, Any] | None:
        failures = {rank: end["failure"] for rank, end in self.ends.items() if end["failure"]}
        if failures and self._dead:
            return self._of_the_dead(error, failures)
        if failures:
            return _told(failures)
        if error is not None:
            return self._classify(error)
        if len(self.ends) < self._world_size:
            return {"kind": LOST, "message": "the workers ended without a word"}
        return None

    def _of_the_dead(self, error: BaseException | None, failures: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """A worker died, and the others failed of that."""
        cause = self._classify(error) if error is not None else {}
        if cause.get("kind") in (OUT_OF_MEMORY, PREEMPTED):
            return cause
        told = _told(failures)
        ranks = ", ".join(str(rank) for rank in sorted(self._dead))
        if self._kernel_killed:
            return {**told, **killed_by_kernel(f" (rank {ranks})")}
        return {**told, "kind": LOST, "message": f"the worker of rank {ranks} died; then {told['message']}"}

    def _classify(self, error: BaseException) -> dict[str, Any]:
        storage = str(self.assignment["storage_path"])
        return classify(error, wanted=self._wanted(), storage=storage, kernel_killed=self._kernel_killed)

    def _wanted(self) -> str:
        scaling = self.assignment["trainer"]["scaling"]
        each = scaling.get("resources_per_worker") or ({"GPU": 1} if scaling.get("use_gpu") else {"CPU": 1})
        return f"{self._world_size} workers x {', '.join(f'{amount:g} {name}' for name, amount in each.items())}"


async def _lives(actor: Any) -> bool:
    try:
        await asyncio.wait_for(actor.__ray_ready__.remote(), ALIVE_SECONDS)
    except RayActorError:
        return False
    except TimeoutError:
        return True  # busy, which the dead are not
    return True


def _undelivered(error: Exception) -> dict[str, Any]:
    """What becomes of an attempt whose report could not be delivered: only a refusal is the user's to mend."""
    if isinstance(error, CallRefused) and not isinstance(error, ServiceFailed):
        return {"kind": USER_ERROR, "message": f"a report was refused: {error.detail}"}
    return {"kind": LOST, "message": f"a report could not be delivered: {headline(error)}"}


def _told(failures: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The failure of an attempt from those of its ranks: the first to fail speaks for it."""
    first = next(iter(failures.values()))
    ranks = [{"rank": rank, "traceback": failure["traceback"]} for rank, failure in sorted(failures.items())]
    return {"kind": first["kind"], "message": first["message"], "traceback": first["traceback"], "ranks": ranks}
