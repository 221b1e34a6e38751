"""The state of an attempt in a slot: whether it trains, has been asked to stop, or is being ended, and why.

Orders come from several threads: the heartbeat, the outboxes, the slot's event loop and the slot's own thread. All of
them go through one `AttemptState`, whose lock makes each move atomic.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer.worker.failures import Failure

logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class State:
    """One state. `summary` completes "the attempt …" in log lines."""

    summary = "trains"


@dataclass(frozen=True)
class Running(State):
    """No order has ended it. The service may still answer a report with "stop"."""


@dataclass(frozen=True)
class Stopping(State):
    """It leaves at its next report. Unless its time limit is the reason, it is killed after the grace period."""

    reason: str | None = None
    summary = "was asked to stop"


@dataclass(frozen=True)
class Draining(State):
    """One of its nodes is drained: it leaves at its next checkpoint or report but one, to be run elsewhere."""

    summary = "was asked to leave a node that is drained"


@dataclass(frozen=True)
class Resizing(State):
    """Its elastic group can have another number of workers: it leaves at its next checkpoint, and is given back."""

    workers: int
    summary = "was asked to leave, to restart with another number of workers"


@dataclass(frozen=True)
class EndingNow(State):
    """Its workers are killed without waiting for a report."""


@dataclass(frozen=True)
class Killed(EndingNow):
    """The service cancelled it, or its grace period is over."""

    summary = "was killed"


@dataclass(frozen=True)
class Refused(EndingNow):
    """The service cannot take its reports, so training on would be in vain."""

    failure: Failure
    summary = "was ended because a report was refused"


@dataclass(frozen=True)
class Stuck(EndingNow):
    """A rank waits in a report for one that has returned, and would wait without end."""

    failure: Failure
    summary = "was ended because a rank waited for one that had returned"


@dataclass(frozen=True)
class Preempted(EndingNow):
    """Its slot closes, or its node goes: it is given back to be run elsewhere."""

    summary = "was preempted"


@dataclass(frozen=True)
class LeaseLost(EndingNow):
    """The service has given the trial to another holder: nothing that this attempt reports counts."""

    summary = "lost its lease"


@dataclass(frozen=True)
class Abandoned(EndingNow):
    """The slot itself failed."""

    failure: Failure
    summary = "was abandoned by its slot"


_FROM_ANY = frozenset({Refused, Stuck, Preempted, LeaseLost, Abandoned})

MOVES: Mapping[type[State], frozenset[type[State]]] = {
    Running: _FROM_ANY | {Stopping, Draining, Resizing, Killed},
    Resizing: _FROM_ANY | {Stopping, Draining, Killed},
    Stopping: _FROM_ANY | {Killed},
    Draining: _FROM_ANY | {Killed},
    Killed: _FROM_ANY | {Killed},
    # A kill does not hide that a report was refused, or that a rank waited in vain: the user has to know.
    Refused: _FROM_ANY,
    Stuck: _FROM_ANY,
    Preempted: _FROM_ANY | {Killed},
    # No order counts without a lease, and the service hears nothing more of an abandoned attempt.
    LeaseLost: frozenset(),
    Abandoned: frozenset(),
}
"""The moves that are allowed. A later order may replace an earlier one, because it may change the outcome."""


class AttemptState:
    """The one owner of an attempt's state. Its methods may be called from any thread.

    `end_workers` is called on each move to an `EndingNow` state, while the lock is held: once `conclude` has returned,
    it is not called any more, because the workers may then be those of the next attempt. What it raises is logged, and
    the order takes effect otherwise: Ray's head may be away.
    """

    def __init__(self, end_workers: Callable[[], None]) -> None:
        self._end = end_workers
        self._lock = threading.Lock()
        self._current: State = Running()
        self._is_concluded = False
        self._is_drained = False

    @property
    def current(self) -> State:
        return self._current

    @property
    def is_concluded(self) -> bool:
        """No order can change the state any more; only `abandon` can."""
        return self._is_concluded

    @property
    def is_drained(self) -> bool:
        """Whether one of its nodes is drained, in whatever state it is."""
        return self._is_drained

    @property
    def is_running(self) -> bool:
        return isinstance(self._current, Running)

    @property
    def is_ending_now(self) -> bool:
        return isinstance(self._current, EndingNow)

    def move(self, to: State) -> bool:
        """Follow an order. False if the present state does not allow it, or the attempt is concluded."""
        with self._lock:
            if self._is_concluded or type(to) not in MOVES[type(self._current)]:
                return False
            self._current = to
            if isinstance(to, EndingNow):
                self._end_workers()
            return True

    def drain(self) -> State:
        """One of its nodes is drained. Returns the state to move to when the time is over."""
        with self._lock:
            self._is_drained = True
            if not self._is_concluded and Draining in MOVES[type(self._current)]:
                self._current = Draining()
            return Preempted() if isinstance(self._current, Draining) else Killed()

    def end_workers(self) -> None:
        """Kill the workers, unless the attempt is concluded."""
        with self._lock:
            if not self._is_concluded:
                self._end_workers()

    def _end_workers(self) -> None:
        try:
            self._end()
        except Exception:
            logger.exception("the workers could not be ended")

    def conclude(self) -> State:
        """Accept no more orders; returns the last state."""
        with self._lock:
            self._is_concluded = True
            return self._current

    def abandon(self, failure: Failure) -> bool:
        """Conclude it as failed by the slot. False if its lease is lost, or it was abandoned before."""
        with self._lock:
            self._is_concluded = True
            if Abandoned not in MOVES[type(self._current)]:
                return False
            self._current = Abandoned(failure)
            return True
