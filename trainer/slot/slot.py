"""The slot: a detached actor that runs one attempt after another on one worker group.

Its process hosts Ray Train's controller, so its death, however it comes, frees everything within a moment. It reports
to the service by itself and gets its next assignment from there: an agent that dies does not disturb it.
"""

import asyncio
import contextlib
import gc
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.client.http import CallRefused, Package, ServiceFailed, ServiceUnreachable, download_package
from trainer.ray_train.backends import BACKENDS
from trainer.ray_train.runners import FreshRunner, Runner, RunPlan, WarmRunner
from trainer.slot.attempt import Attempt
from trainer.slot.checkpoint_removal import DirectoryRemover
from trainer.slot.node_tasks import read_last_words, remove_folder
from trainer.worker.failures import CANNOT_START, LOST, of_another_cluster
from trainer.worker.session import Job, run_job, train_function

logger = logging.getLogger("paceline")

# A slot without work that no agent has asked after for so long closes itself.
ORPHAN_SECONDS = 30.0
CLOSE_SECONDS = 8.0
DISPOSAL_SECONDS = 2.0
# For Ray to end the process group of a run that has succeeded; it takes a twentieth of a second.
TAKEDOWN_SECONDS = 10.0
REST_SECONDS = 5.0
# For leaving nothing behind. A Ray that has forgotten this process may never answer.
END_SECONDS = 30.0
TRIALS_PER_WORKER = 100
# Half a dozen threads here answer each other; by default one that computes gives way after ten times as long.
SWITCH_SECONDS = 0.0005


class Slot:
    """What it runs first says what it can run: the same experiment, package and shape. A `spare` one waits for that.

    All `async` methods are called through Ray. Nothing is handed out as an ObjectRef to wait for: whoever asks may die.
    """

    def __init__(self, service_url: str, name: str, *, spare: bool = False) -> None:
        self._url = service_url
        self._name = name
        self._spare = spare
        self._key: str | None = None
        self._scaling: dict[str, Any] | None = None
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._given: dict[str, Any] | None = None
        self._attempt: Attempt | None = None
        self._runs: Runner | None = None
        self._code = ray.put(run_job)
        self._teller = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-teller")
        self._package: tuple[Any, str] | None = None
        self._nodes: set[str] = set()
        self._placement_group: str | None = None
        self._given_count = 0
        self._served_count = 0
        self._idle_since: float | None = time.monotonic()
        self._asked_at = time.monotonic()
        self._closing = False
        self._draining = False
        self._broken = False
        self._settled = False
        self._drained_until: dict[str, float] = {}
        self._disposal = DirectoryRemover()
        self._handle = ray.get_runtime_context().current_actor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="paceline-slot", daemon=True)
        sys.setswitchinterval(SWITCH_SECONDS)
        self._disposal.start()
        self._thread.start()

    # What the agent asks.

    async def run(self, assignment: dict[str, Any], key: str, scaling: dict[str, Any]) -> bool:
        """Take an assignment, which `key` names the kind of; False if the slot is busy or closing."""
        self._given_count += 1
        if self._leaves or self._idle_since is None:
            return False
        self._key, self._scaling = key, scaling
        self._idle_since, self._given = None, assignment
        self._loop = asyncio.get_running_loop()
        self._inbox.put(assignment)
        return True

    async def status(self) -> dict[str, Any]:
        self._asked_at = time.monotonic()
        attempt = self._attempt
        has = attempt.assignment if attempt else self._given
        return {
            "name": self._name,
            "key": self._key,
            "scaling": self._scaling,
            "trial": has["trial"] if has else None,
            "attempt": has["attempt"] if has else None,
            "began": attempt is not None and bool(attempt.members),
            "idle_seconds": None if self._idle_since is None else time.monotonic() - self._idle_since,
            "placement_group": (self._runs and self._runs.placement_group) or self._placement_group,
            "nodes": sorted(self._used_nodes()),
            "given_count": self._given_count,
            "draining": self._draining,
            "closing": self._closing or self._broken,
        }

    async def drain(self, nodes: list[str], grace_seconds: float) -> None:
        """These Ray nodes are taken away in `grace_seconds`. Saying so again is harmless.

        If this slot uses one of them, or comes to: its attempt leaves at its next report, is ended when the time is
        over, and fails as preempted; the slot then closes itself.
        """
        for node in nodes:
            self._drained_until.setdefault(node, time.monotonic() + grace_seconds)
        self._leave_drained_nodes()

    async def close(self) -> None:
        """Give a running attempt back, end everything and leave nothing behind. The caller then kills the actor."""
        self._closing = True
        attempt = self._attempt
        if attempt is not None:
            await asyncio.to_thread(attempt.end, "preempted")
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        await asyncio.to_thread(self._clean_up)

    # What the workers, and Ray's own controller, say. `run` names the attempt: a late word is for nobody.

    async def joined(self, run: str, rank: int, member: dict[str, Any]) -> None:
        self._nodes.add(member["node"])
        self._placement_group = member["placement_group"]
        self._leave_drained_nodes()
        if (attempt := self._of(run)) is not None:
            await attempt.joined(rank, member)

    async def answer(self, run: str, *report: Any) -> str:
        attempt = self._of(run)
        return await attempt.answer(*report) if attempt is not None else "stop"

    async def log(self, run: str, *chunk: Any) -> None:
        if (attempt := self._of(run)) is not None:
            await attempt.log(*chunk)

    async def counted(self, run: str, *count: Any) -> None:
        if (attempt := self._of(run)) is not None:
            await attempt.counted(*count)

    async def ended(self, run: str, rank: int, end: dict[str, Any]) -> None:
        if (attempt := self._of(run)) is not None:
            await attempt.ended(rank, end)

    async def saved(self, run: str, sequence: int, path: str) -> None:
        self._saved(run, sequence, path)

    async def get_all_reported_checkpoints(self, *args: Any) -> Any:
        """Asked by Ray Train's `get_all_reported_checkpoints()` in a worker whose controller lives here."""
        controller = self._runs.kept.controller if isinstance(self._runs, WarmRunner) else None
        return await controller.reported_checkpoints(*args) if controller else []

    def _of(self, run: str) -> Attempt | None:
        attempt = self._attempt
        return attempt if attempt is not None and attempt.run == run else None

    def _saved(self, run: str, sequence: int, path: str) -> None:
        if (attempt := self._of(run)) is not None:
            attempt.saved(sequence, path)

    def _used_nodes(self) -> set[str]:
        return {ray.get_runtime_context().get_node_id(), *self._nodes}

    def _leave_drained_nodes(self) -> None:
        ends = [until for node, until in self._drained_until.items() if node in self._used_nodes()]
        if not ends or self._draining:
            return
        logger.info("slot %s leaves: a node it uses is taken away", self._name)
        self._draining = True
        if (attempt := self._attempt) is not None:
            attempt.drain(max(0.0, min(ends) - time.monotonic()))
        self._inbox.put(None)

    # The slot's own thread.

    @property
    def _leaves(self) -> bool:
        """It takes no further assignment."""
        return self._closing or self._draining or self._broken

    def _work(self) -> None:
        """Serve, then end the process: after an error, too, since nobody would hear of this slot again."""
        try:
            if self._spare:
                self._prepare()
            self._serve()
            if self._closing:
                return  # the agent cleans up, and ends the process
            logger.info("slot %s closes itself: %s", self._name, self._why_closed())
            self._closing = True
        except Exception:
            logger.exception("slot %s can't go on", self._name)
        self._end()

    def _prepare(self) -> None:
        """What nearly all trials need, and what takes seconds."""
        with contextlib.suppress(ImportError):
            BACKENDS["torch"].trainer_class()
        gc.collect()
        gc.freeze()
        self._settled = True

    def _why_closed(self) -> str:
        if self._broken:
            return "Ray does not let it start anything"
        return "drained" if self._draining else "no work, no agent"

    def _end(self) -> None:
        """Not by `ray.kill`: where Ray's head was started anew, that is heard by nobody."""
        cleaning = threading.Thread(target=self._clean_up, name="paceline-clean-up", daemon=True)
        cleaning.start()
        cleaning.join(END_SECONDS)
        os._exit(0)

    def _serve(self) -> None:
        """Run one assignment after the other until the slot is to close, or has no agent."""
        while not self._orphaned():
            try:
                assignment = self._inbox.get(timeout=ORPHAN_SECONDS / 6)
            except queue.Empty:
                continue
            if assignment is None:
                return
            while assignment is not None:
                assignment = self._run_one(assignment)
            if self._broken:
                return

    def _orphaned(self) -> bool:
        return self._idle_since is not None and time.monotonic() - self._asked_at > ORPHAN_SECONDS

    def _run_one(self, assignment: dict[str, Any]) -> dict[str, Any] | None:
        """Run an attempt to its end; returns the next one. What it raises is the slot's failure, not the attempt's."""
        assert self._loop is not None  # noqa: S101 - `run` sets it before it gives anything to this thread
        runs = self._runs = self._runs or self._make_runs(assignment["trainer"])
        attempt = Attempt(assignment, self._url, self._loop, runs, self._discard)
        self._attempt, self._given = attempt, None
        if self._closing or self._draining:
            attempt.ending, attempt.drained = "preempted", self._draining
        try:
            attempt.start()
            return self._fit(attempt, runs, assignment)
        except Exception as error:
            attempt.abandon(error)
            raise
        finally:
            self._attempt = None
            if not self._settled:  # Ray and torch are loaded now: to look through them takes 0.2 seconds
                self._settled = True
                gc.freeze()

    def _fit(self, attempt: Attempt, runs: Runner, assignment: dict[str, Any]) -> dict[str, Any] | None:
        """Run it and tell the service how it ended, in the case of success while Ray still takes the run down."""
        try:
            job = self._job(attempt, assignment)
        except (ServiceUnreachable, CallRefused) as error:
            return self._without_package(attempt, error)
        told: list[Future[dict[str, Any] | None]] = []
        # From then on nobody else would end workers that hang, and the next attempt's lease may run.
        takedown = threading.Timer(min(TAKEDOWN_SECONDS, assignment["lease"]["seconds"] / 2), runs.end_workers)

        def succeeded() -> None:
            told.append(self._teller.submit(self._finish, attempt, None))
            takedown.start()

        raised = None if attempt.ending else runs.fit(train_function(job, self._code), _plan(attempt, succeeded))
        takedown.cancel()
        self._served_count += 1
        not_down = f"Ray could not take the run down: {raised}" if told and raised is not None else None
        if (
            why := attempt.reset_failure or not_down or self._tired(assignment["trainer"]["reuse_workers"])
        ) is not None:
            logger.info("new worker processes after %s: %s", attempt.run, why)
            runs.end_workers()
            self._served_count = 0
        if not told:
            return self._finish(attempt, raised)
        following = told[0].result()
        self._broken = raised is not None and of_another_cluster(raised)
        return following

    def _finish(self, attempt: Attempt, raised: BaseException | None) -> dict[str, Any] | None:
        """Deliver the rest of an attempt and how it ended; returns the next assignment, if there is one."""
        body = attempt.conclude(raised, lambda rank: self._last_words(attempt.members[rank]))
        self._broken = raised is not None and (of_another_cluster(raised) or _never_began(body))
        if attempt.reset_failure is not None and (kept := attempt.kept()) is not None:
            self._disposal.remove_all_except(*kept)  # a worker may have died while it saved
        return self._tell(attempt, body)

    def _without_package(self, attempt: Attempt, error: Exception) -> dict[str, Any] | None:
        body = attempt.conclude(None, lambda _rank: ("", None))
        if attempt.ending is None:
            kind = LOST if isinstance(error, ServiceUnreachable | ServiceFailed) else CANNOT_START
            body = attempt.failed({"kind": kind, "message": f"no package to run: {error}"})
        return self._tell(attempt, body)

    def _tell(self, attempt: Attempt, body: dict[str, Any] | None) -> dict[str, Any] | None:
        self._attempt = None  # what is said of it from now on is too late
        following = attempt.finish({**body, "next": not self._leaves}) if body is not None else None
        if following is None:  # Ray may still take the run down: what the agent brings meanwhile waits for that
            self._idle_since = time.monotonic()
        return following

    def _tired(self, reuse_workers: bool | int) -> str | None:
        """What a trial leaves behind unseen, such as memory in pieces, adds up: no worker serves for ever."""
        most = TRIALS_PER_WORKER if reuse_workers is True else int(reuse_workers)
        return f"they have served {self._served_count} trials" if self._served_count >= most else None

    def _make_runs(self, trainer: dict[str, Any]) -> Runner:
        if trainer["reuse_workers"] and BACKENDS[trainer["kind"]].warm:
            return WarmRunner(self._saved)
        return FreshRunner(self._handle)

    def _discard(self, checkpoint: str) -> None:
        if self._runs is not None:
            self._runs.forget(checkpoint)
        self._disposal.put(checkpoint)

    def _job(self, attempt: Attempt, assignment: dict[str, Any]) -> Job:
        trainer, resume = assignment["trainer"], assignment.get("resume")
        package_id = trainer.get("package")
        if package_id and self._package is None:
            found: Package = download_package(attempt.service, package_id, lambda: attempt.ending is not None)
            self._package = ray.put(found.content), found.filename
        content, filename = self._package or (None, None)
        return Job(
            run=attempt.run,
            slot=self._handle,
            entrypoint=trainer["entrypoint"],
            config=assignment["config"],
            package=content,
            package_name=filename,
            package_folder=self._folder,
            resume=resume["uri"] if resume else None,
        )

    @property
    def _folder(self) -> str:
        """The name, in each node's temporary directory, of the unpacked package."""
        return f"paceline-{self._name}"

    def _last_words(self, member: dict[str, Any]) -> tuple[str, int | None]:
        """What a worker that died could not say any more, read on its node."""
        try:
            found: tuple[str, int | None] = self._on_node(
                member["node"], read_last_words, member["positions"], member["oom_counter"]
            )
        except (ray.exceptions.RayError, OSError):
            return "", None  # the node is gone
        return found

    def _clean_up(self) -> None:
        if self._runs is not None:
            self._runs.close()
        self._disposal.close(DISPOSAL_SECONDS)
        for node in self._nodes:
            try:
                self._on_node(node, remove_folder, self._folder)
            except ray.exceptions.RayError as error:
                logger.info("the package on node %s could not be removed: %s", node, error)

    def _on_node(self, node: str, function: Any, *arguments: Any) -> Any:
        if node == ray.get_runtime_context().get_node_id():
            return function(*arguments)
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(num_cpus=0)(function).options(scheduling_strategy=there)
        return ray.get(task.remote(*arguments), timeout=REST_SECONDS)


def _never_began(body: dict[str, Any] | None) -> bool:
    """Whether Ray lost the attempt before any worker of it ran. The next would fare no better here."""
    error = (body or {}).get("error") or {}
    return error.get("kind") == LOST and not error["began"]


def _plan(attempt: Attempt, succeeded: Callable[[], None]) -> RunPlan:
    assignment = attempt.assignment
    return RunPlan(
        trainer=assignment["trainer"],
        name=assignment["run_name"],
        storage_path=assignment["storage_path"],
        abandoned=lambda: attempt.ended_at_once,
        succeeded=succeeded,
    )
