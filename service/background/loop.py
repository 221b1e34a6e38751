"""One contract for all that runs for ever: do a piece of work, look again, be seen failing, stop when told."""

import logging
import random
import threading
from datetime import datetime
from time import monotonic
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from service.clock import Clock, utc_now

logger = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 5.0


class Work(Protocol):
    """`run_once` does what there is to do, or a good piece of it; `is_behind` says whether it left some.

    It is begun every `every` seconds, or at once after one that took longer, or left some. To do a little all the time
    would cost the processor more than it brings.
    """

    name: str
    every: float
    is_behind: bool

    def run_once(self) -> object: ...


def _told(error: Exception) -> str:
    """For /readyz, which anybody may read: a database's messages are for the log alone."""
    if isinstance(error, ExceptionGroup):
        return f"{error.message}; the first: {_told(error.exceptions[0])}"
    return type(error).__name__ if isinstance(error, SQLAlchemyError) else f"{type(error).__name__}: {error}"


class Loop:
    """Runs the work in a thread of its own. An error is logged, shown on /readyz, and tried again after a pause.

    `needed`: the service is not ready while the work fails.
    """

    def __init__(self, work: Work, *, needed: bool = True, clock: Clock = utc_now) -> None:
        self.needed = needed
        self.name = work.name
        self._work = work
        self._clock = clock
        self._spread = random.Random()  # noqa: S311 - no secret
        self._stop = threading.Event()
        self._error: str | None = None
        self._failures = 0
        self._succeeded_at: datetime | None = None
        self._thread = threading.Thread(target=self._run, name=f"loop-{work.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5) -> None:
        self._stop.set()
        self._thread.join(timeout)

    def health(self) -> dict[str, Any]:
        return {
            "ok": self._error is None and (self._thread.is_alive() or self._succeeded_at is None),
            "needed": self.needed,
            "error": self._error,
            "succeeded_at": self._succeeded_at,
        }

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = self._step()
            self._stop.wait(pause * self._spread.uniform(0.8, 1.2))

    def _step(self) -> float:
        """Does a piece of work; returns the seconds to rest."""
        began = monotonic()
        try:
            self._work.run_once()
        except Exception as error:  # a loop outlives whatever its work meets; the error is shown, not hidden
            self._failures += 1
            if self._error is None:
                logger.exception("%s failed; it is tried again", self.name)
            self._error = _told(error)
            return min(MAX_BACKOFF_SECONDS, self._work.every * 2.0 ** min(self._failures, 10))
        if self._error is not None:
            logger.info("%s works again", self.name)
        self._error, self._failures, self._succeeded_at = None, 0, self._clock()
        return 0.0 if self._work.is_behind else max(0.0, self._work.every - (monotonic() - began))
