"""Timers of an attempt in the slot's event loop."""

import asyncio
from collections.abc import Callable
from typing import Any


class Timers:
    """At most one timer of each name. Methods may be called from any thread."""

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
