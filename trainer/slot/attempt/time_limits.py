"""The time limits of an attempt: when it leaves, when its workers are killed, and what the log says before."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from trainer.ray_train.runners import Runner
from trainer.slot.assignment import Assignment
from trainer.worker.user_code.function_stack import log_function_stack

STACK_SECONDS = 5.0
"""How long before the workers are killed the log gets the stacks of their training functions."""

SILENCE_STACK_SECONDS = 30.0
"""The same time where no report has come: the service counts from the claim, and the slot may start later."""


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
        self._timers = _Timers(loop)

    def expect_report(self) -> None:
        """The service takes the lease away when none has come for long; nothing reaches the log after that."""
        if limit := self._assignment.report_timeout_seconds:
            why = f"is killed if the trial does not report for {limit:g} s"
            self._log_stacks("report timeout", max(limit - SILENCE_STACK_SECONDS, limit / 2), why, self._timers.restart)

    def function_began(self) -> None:
        if limit := self._assignment.max_seconds:
            self._timers.start("time limit", limit, self._leave, f"it has run for {limit:g} seconds")
        if limit := self._assignment.kill_after_seconds:
            self._timers.start("kill", limit, self._kill)
            self._log_stacks("kill", _before(limit), f"is killed when it has run for {limit:g} s")

    def asked_to_stop(self) -> None:
        limit = self._assignment.stop_grace_seconds
        self._timers.start("grace period", limit, self._kill)
        self._log_stacks("grace period", _before(limit), f"is killed if it does not stop within {limit:g} s")

    def drain(self, seconds: float, end: Callable[[], object]) -> None:
        self._timers.start("drain", seconds, end)

    def cancel_all(self) -> None:
        self._timers.cancel_all()

    def _log_stacks(self, event: str, after: float, why: str, begin: Callable[..., None] | None = None) -> None:
        """Have each rank log where its function is. Of a command there is nothing to see in the worker's process."""
        if self._assignment.trainer.command is None:
            begin = begin or self._timers.start
            begin(f"stacks: {event}", after, self._runner.call_in_workers, partial(log_function_stack, why))


def _before(limit: float) -> float:
    return max(limit - STACK_SECONDS, limit / 2)


class _Timers:
    """At most one timer of each name, in the event loop. Methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._are_cancelled = False

    def start(self, name: str, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call it after so many seconds. Does nothing if a timer of this name exists, or all are cancelled."""
        self._loop.call_soon_threadsafe(self._start, name, seconds, call, arguments)

    def restart(self, name: str, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Like `start`, but in place of the timer that has this name, if there is one."""
        self._loop.call_soon_threadsafe(self._restart, name, seconds, call, arguments)

    def _restart(self, name: str, seconds: float, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        self._start(name, seconds, call, arguments)

    def _start(self, name: str, seconds: float, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if not self._are_cancelled and name not in self._timers:
            self._timers[name] = self._loop.call_later(seconds, call, *arguments)

    def cancel_all(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        self._are_cancelled = True
        for timer in self._timers.values():
            timer.cancel()
