"""The time limits of an attempt: when it leaves, when its workers are killed, and what the log says before."""

import asyncio
from collections.abc import Callable
from functools import partial

from trainer.ray_train.runners import Runner
from trainer.slot.assignment import Assignment
from trainer.slot.attempt.timers import Timers
from trainer.worker.function_stack import log_function_stack

STACK_SECONDS = 5.0
"""How long before the workers are killed the log gets the stacks of their training functions."""


class TimeLimits:
    """`leave(reason)` is called when the attempt is to leave at its next report, `kill()` when its workers are killed.

    Both are called in the event loop. The methods may be called from any thread.
    """

    def __init__(
        self,
        assignment: Assignment,
        loop: asyncio.AbstractEventLoop,
        runner: Runner,
        leave: Callable[[str], object],
        kill: Callable[[], object],
    ) -> None:
        self._assignment = assignment
        self._runner = runner
        self._leave = leave
        self._kill = kill
        self._timers = Timers(loop)

    def expect_report(self) -> None:
        """The service takes the lease away when none has come for long; nothing reaches the log after that."""
        if limit := self._assignment.report_timeout_seconds:
            why = f"is killed if the trial does not report for {limit:g} s"
            self._log_stacks_before("report timeout", limit, why, self._timers.restart)

    def function_began(self) -> None:
        if limit := self._assignment.max_seconds:
            self._timers.start("time limit", limit, self._leave, f"it has run for {limit:g} seconds")
        if limit := self._assignment.kill_after_seconds:
            self._timers.start("kill", limit, self._kill)
            self._log_stacks_before("kill", limit, f"is killed when it has run for {limit:g} s")

    def asked_to_stop(self) -> None:
        limit = self._assignment.stop_grace_seconds
        self._timers.start("grace period", limit, self._kill)
        self._log_stacks_before("grace period", limit, f"is killed if it does not stop within {limit:g} s")

    def drain(self, seconds: float, end: Callable[[], object]) -> None:
        self._timers.start("drain", seconds, end)

    def cancel_all(self) -> None:
        self._timers.cancel_all()

    def _log_stacks_before(
        self, event: str, seconds: float, why: str, begin: Callable[..., None] | None = None
    ) -> None:
        """Of a command there is nothing to see in the worker's process."""
        if self._assignment.trainer.command is None:
            begin, due = begin or self._timers.start, max(seconds - STACK_SECONDS, seconds / 2)
            begin(f"stacks: {event}", due, self._runner.call_in_workers, partial(log_function_stack, why))
