"""Worker processes for long computations, which would take the service's threads and its interpreter."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import Any, TypeVar, TypeVarTuple

from service.errors import Busy, ServiceError, TooMuchWork, Unavailable
from service.runtime.computation.compute_worker import IDLE_SECONDS, LENGTH_BYTES, framed, main
from trainer.process_log.context import log_context

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

WORKERS = max(2, len(os.sched_getaffinity(0)) // 4)
MAX_WAITING = 16
WAIT_SECONDS = 30.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A worker's matrices are small: more threads would only take processors from the service."""


class ComputePool:
    """At most `WORKERS` computations run; `MAX_WAITING` others wait. A worker starts when a computation needs it.

    A computation ends after `seconds`, and when its caller is cancelled: its process is killed.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._places = threading.Semaphore(WORKERS + MAX_WAITING)
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="paceline-compute")
        self._own = threading.local()  # each thread's worker
        self._workers: set[_Worker] = set()
        self._is_closed = False

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Return what `work` returns, which must be a function of a module, and raise what it raises.

        Also raises Busy, TooMuchWork, and Unavailable if the process dies.
        """
        if not self._places.acquire(blocking=False):
            raise Busy(f"{WORKERS} computations run and {MAX_WAITING} wait for them; repeat the call later")
        try:
            computation = _Computation(framed((work, arguments, log_context.fields())))
            submitted = self._threads.submit(self._compute, computation)
        except BaseException:
            self._places.release()
            raise
        submitted.add_done_callback(lambda _: self._places.release())
        waiting = asyncio.wrap_future(submitted)
        try:
            done, _ = await asyncio.wait((waiting,), timeout=WAIT_SECONDS)
            if not done and submitted.cancel():
                raise Busy(f"other computations have not ended for {WAIT_SECONDS:g} s; repeat the call later")
            result: Result = await waiting
        except asyncio.CancelledError:
            waiting.cancel()
            computation.kill()
            raise
        return result

    def close(self) -> None:
        """End all computations."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown()
        for worker in self._workers:
            worker.end()

    def _compute(self, computation: "_Computation") -> Any:
        worker = self._worker()
        deadline = threading.Timer(self._seconds, computation.kill, (self._too_much(),))
        deadline.start()
        try:
            returned, outcome = computation.run_on(worker)
        except BaseException:
            self._end(worker)
            raise
        finally:
            deadline.cancel()
        if not returned:
            raise outcome
        return outcome

    def _worker(self) -> "_Worker":
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is not None and worker.may_have_ended():
            self._end(worker)
            worker = None
        if worker is None:
            worker = self._own.worker = _Worker()
            self._workers.add(worker)
        if self._is_closed:
            worker.kill()
        return worker

    def _end(self, worker: "_Worker") -> None:
        self._own.worker = None
        self._workers.discard(worker)
        worker.end()

    def _too_much(self) -> TooMuchWork:
        return TooMuchWork(
            f"this took more than {self._seconds:g} s and was ended. Ask for less where the call allows it, repeat it "
            f"when the machine is less busy, or raise the service's setting PACELINE_COMPUTE_SECONDS",
            max_seconds=self._seconds,
        )


class _Worker:
    """A process of `service.runtime.computation.compute_worker`."""

    def __init__(self) -> None:
        """The process has the service's own `sys.path`: the working directory may have modules of the same names.

        It is not started by `-m`, which would give the module's classes another name, `__main__`, by which they cannot
        be pickled.
        """
        command = (sys.executable, "-P", "-W", "ignore", "-c", f"from {main.__module__} import main; main()")
        env = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=env)  # noqa: S603 - our own
        self._last_used_at = time.monotonic()

    def may_have_ended(self) -> bool:
        """After `IDLE_SECONDS` it ends by itself; the kernel may have killed it before."""
        return time.monotonic() - self._last_used_at > IDLE_SECONDS / 2 or self._process.poll() is not None

    def call(self, request: bytes) -> tuple[bool, Any]:
        """Whether the function has returned, and what it returned or raised. Raises EOFError when the process dies."""
        assert self._process.stdin  # noqa: S101 - opened as a pipe
        assert self._process.stdout  # noqa: S101 - opened as a pipe
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError from error
        length = int.from_bytes(self._process.stdout.read(LENGTH_BYTES), "big")
        answer = self._process.stdout.read(length)
        if not length or len(answer) < length:
            raise EOFError
        self._last_used_at = time.monotonic()
        found: tuple[bool, Any] = pickle.loads(answer)  # noqa: S301 - our own process has written it
        return found

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes the pipes


@dataclass
class _Computation:
    request: bytes
    _worker: _Worker | None = None
    _killed: ServiceError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run_on(self, worker: _Worker) -> tuple[bool, Any]:
        """Raises the reason that `kill` was called with, and Unavailable if the process dies otherwise."""
        with self._lock:
            if self._killed:
                raise self._killed
            self._worker = worker
        try:
            answer = worker.call(self.request)
        except EOFError as error:
            lost = Unavailable("the computation's process was killed, perhaps because memory ran out")
            raise self._killed or lost from error
        with self._lock:
            self._worker = None
            if self._killed:
                raise self._killed
        return answer

    def kill(self, reason: ServiceError | None = None) -> None:
        with self._lock:
            self._killed = reason or Unavailable("the caller has gone")
            if self._worker:
                self._worker.kill()
