"""The contract of all background loops: repeat a piece of work, show its errors on /readyz, stop when asked."""

import logging
import random
import threading
from datetime import datetime
from time import monotonic
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from service.clock import Clock, utc_now

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Failed work is tried again after at most this long. If it keeps failing and its own interval is longer, the wait
doubles each time, up to that interval."""
MESSAGE_LENGTH = 1000
"""Of an error on /readyz, in characters: libraries quote what another program answers, such as a whole page."""

STUCK_SECONDS = 120.0
"""The longest call of work that the service needs. A statement that PostgreSQL does not answer ends much earlier."""


class PartlyFailed(Exception):
    """A part of the work fails and pauses by itself, or all of it pauses; so the loop keeps its pace."""


class Work(Protocol):
    """`run_once` does all pending work, or a large piece of it; afterwards `is_behind` tells whether some is left.

    The loop calls it every `every` seconds; immediately again when a call took longer, or left work. Longer intervals
    cost less CPU time than doing a little work all the time.
    """

    name: str
    """on /readyz and /metrics, so it must not change"""
    every: float
    is_behind: bool

    def run_once(self) -> object: ...


class Loop:
    """Runs the work in a thread of its own. An error is shown on /readyz, and the work is tried again later.

    The log has the first error of each kind since the work succeeded last.

    `needed`: the service is not ready while the work fails, or a call of it does not return.
    """

    def __init__(self, work: Work, *, needed: bool = True, clock: Clock = utc_now) -> None:
        self.needed = needed
        self.name = work.name
        self._work = work
        self._clock = clock
        self._jitter = random.Random()  # noqa: S311 - no secret
        self._stop = threading.Event()
        self._delay = 0.0
        self._error: str | None = None
        self._kinds: set[str] = set()
        self._failures = 0
        self._succeeded_at: datetime | None = None
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"loop-{work.name}", daemon=True)

    def start(self, delay: float = 0) -> None:
        """The first call of the work comes after `delay` seconds."""
        self._delay = delay
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self, timeout: float = 5) -> None:
        self.ask_to_stop()
        if self._thread.ident is not None:  # otherwise the service never came to listen
            self._thread.join(timeout)

    def health(self) -> dict[str, Any]:
        error = self._stuck_call() or self._error
        return {
            "ok": error is None and (self._thread.is_alive() or self._succeeded_at is None),
            "needed": self.needed,
            "error": error,
            "succeeded_at": self._succeeded_at,
        }

    def _stuck_call(self) -> str | None:
        """Say that the present call takes too long. Work that is not needed may: a first mirror writes everything."""
        began = self._began
        seconds = 0.0 if began is None else monotonic() - began
        return f"a call has not returned for {seconds:.0f} s" if self.needed and seconds > STUCK_SECONDS else None

    def _run(self) -> None:
        self._stop.wait(self._delay)
        while not self._stop.is_set():
            pause = self._run_once()
            self._began = None
            self._stop.wait(pause * self._jitter.uniform(0.8, 1.2))

    def _run_once(self) -> float:
        """Call the work once; return the seconds until the next call."""
        began = self._began = monotonic()
        try:
            self._work.run_once()
        except PartlyFailed as error:
            self._show(error)
            self._failures = 0
            return self._pause(began)
        except BaseException as error:  # noqa: BLE001 - any error: the loop must survive it, and /readyz shows it
            self._show(error)
            self._failures += 1
            return self._backoff()
        if self._error is not None:
            logger.info("%s works again", self.name)
        self._error, self._kinds, self._failures, self._succeeded_at = None, set(), 0, self._clock()
        return self._pause(began)

    def _backoff(self) -> float:
        every = self._work.every
        doublings = min(self._failures, 60)  # a float has no more
        return min(max(RETRY_SECONDS, every), min(RETRY_SECONDS / 2, every) * 2.0**doublings)

    def _show(self, error: BaseException) -> None:
        new = _kinds(error) - self._kinds
        self._kinds |= new
        if new:
            logger.error("%s failed and is tried again", self.name, exc_info=error)
        self._error = _public_message(error)

    def _pause(self, began: float) -> float:
        return 0.0 if self._work.is_behind else max(0.0, self._work.every - (monotonic() - began))


def _kinds(error: BaseException) -> set[str]:
    if isinstance(error, BaseExceptionGroup):
        return set().union(*map(_kinds, error.exceptions))
    return {type(error).__name__}


def _public_message(error: BaseException) -> str:
    """Return the error's text for /readyz, which needs no token: a database's messages go to the log only."""
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}; the first: {_public_message(error.exceptions[0])}"
    name = type(error).__name__
    return name if isinstance(error, SQLAlchemyError) else f"{name}: {error}"[:MESSAGE_LENGTH]
