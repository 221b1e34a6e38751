"""Proposes configurations from the cached study of each experiment, which can be rebuilt from SQL at any time."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from cachetools import LRUCache
from sqlalchemy.orm import Session

from search.problem import SpaceExhausted
from service.runtime.caches.cached_study import CachedStudy, Proposal, current_study
from service.runtime.computation.numeric_libraries import limit_threads
from service.store.early_stopping.milestones import ReachedMilestone, milestones_changed_after
from service.store.sql.database import Database
from service.store.trials.trials import trials_changed_after
from trainer.process_log.context import log_context

logger = logging.getLogger(__name__)

MAX_STUDIES = 64
PATIENCE_SECONDS = 2.0
"""How long a call waits for another one's proposal. It has one of the few threads that all experiments share."""
CLOSE_SECONDS = 5.0


class ProposalPending(Exception):
    """Another call makes the experiment's next proposal, which takes long: it has for so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"another call has been making the next proposal for {seconds:.0f} s")
        self.seconds = seconds


class _Turn:
    """A lock with a limit for how long one waits: not at all where the last holder took long, or the present one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_at, self._last_seconds = math.inf, 0.0

    def take(self) -> bool:
        """Return whether it had to wait. Raises ProposalPending."""
        is_free = self._lock.acquire(blocking=False)
        if not is_free and not self._lock.acquire(timeout=self._patience()):
            raise ProposalPending(self._seconds())
        self._began_at = time.monotonic()
        return not is_free

    def pending(self) -> ProposalPending | None:
        """What `take` would raise now without waiting."""
        seconds = self._seconds()
        is_pending = self._lock.locked() and self._patience() == 0
        return ProposalPending(seconds) if is_pending else None

    def end(self) -> None:
        self._last_seconds, self._began_at = time.monotonic() - self._began_at, math.inf
        self._lock.release()

    def _patience(self) -> float:
        return max(0.0, PATIENCE_SECONDS - max(self._last_seconds, self._seconds()))

    def _seconds(self) -> float:
        """How long the present turn has taken; 0 if there is none."""
        return max(0.0, time.monotonic() - self._began_at)


@dataclass
class _Entry:
    study: CachedStudy | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: _Turn = field(default_factory=_Turn)
    is_scheduled: bool = False


class Proposals:
    """Proposes configurations: one at a time for an experiment, in parallel for several experiments.

    A proposal that was computed ahead is a function of the same history as one that is computed on demand, and is used
    only while the history is unchanged. So computing ahead changes the latency and nothing else.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._entries: MutableMapping[str, _Entry] = LRUCache(MAX_STUDIES)
        self._lock = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="paceline-ahead")

    def propose(self, experiment_id: str, number: int) -> Proposal:
        """Return the configuration of trial `number`, by all that is stored now. Raises SpaceExhausted, NotFound."""
        entry = self._entry(experiment_id)
        with entry.lock:
            with self._database.read() as session:
                study = entry.study = current_study(entry.study, session, experiment_id)
                trials = trials_changed_after(session, experiment_id, study.seen_event)
                milestones: Sequence[ReachedMilestone] = ()
                if study.view.scores_curves:
                    milestones = milestones_changed_after(session, experiment_id, study.seen_milestone)
            return study.propose(trials, milestones, number)

    @contextmanager
    def turn(self, experiment_id: str) -> Iterator[bool]:
        """Held by one caller at a time, from its proposal until a trial has it: otherwise many propose in vain.

        The value says whether it had to wait, so that what the caller knew may be out of date. Raises ProposalPending.
        """
        turn = self._entry(experiment_id).turn
        has_waited = turn.take()
        try:
            yield has_waited
        finally:
            turn.end()

    def pending(self, experiment_id: str) -> ProposalPending | None:
        """What `turn` would raise now without waiting, while another caller computes the next proposal."""
        entry = self._entry(experiment_id)
        return entry.turn.pending() if entry.lock.locked() else None

    def newest(self, experiment_id: str) -> Proposal | None:
        """Return the last proposal. None if there is none yet, and while the next one is being computed."""
        entry = self._entry(experiment_id)
        if not entry.lock.acquire(blocking=False):
            return None
        try:
            newest = entry.study.newest if entry.study else None
        finally:
            entry.lock.release()
        return None if newest is None else replace(newest, may_be_outdated=True)

    def prepare(self, experiment_id: str, next_number: Callable[[Session], int | None]) -> None:
        """Schedule the next proposal to be computed ahead.

        `next_number` is called in the background, and returns the number of the trial; None if none may be created.
        """
        entry = self._entry(experiment_id)
        if not entry.is_scheduled:
            entry.is_scheduled = True
            self.run_ahead(partial(self._propose_ahead, entry, experiment_id, next_number))

    def run_ahead(self, work: Callable[[], None]) -> None:
        """Run what can only save time, after what is scheduled already."""
        with suppress(RuntimeError):  # closed
            self._ahead.submit(_logged, work)

    def close(self) -> None:
        """Stop computing ahead. Wait up to `CLOSE_SECONDS` for the proposal that is being computed."""
        ending = threading.Thread(target=self._ahead.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)

    def _propose_ahead(self, entry: _Entry, experiment_id: str, next_number: Callable[[Session], int | None]) -> None:
        entry.is_scheduled = False
        log_context.begin(experiment=experiment_id)
        with self._database.read() as session:
            number = next_number(session)
        if number is not None:
            self.propose(experiment_id, number)
        if entry.study is None:
            with entry.lock, self._database.read() as session:
                entry.study = current_study(entry.study, session, experiment_id)
        study = entry.study
        if study is not None and not study.has_library:
            study.view.import_library()
            limit_threads()
            study.has_library = True

    def _entry(self, experiment_id: str) -> _Entry:
        with self._lock:
            return self._entries.setdefault(experiment_id, _Entry())


def _logged(work: Callable[[], None]) -> None:
    log_context.begin()
    try:
        work()
    except SpaceExhausted:
        pass  # the next claim gets it, too
    except Exception as error:  # noqa: BLE001 - the next claim gets it, too, and ends the experiment
        logger.info("no proposal was computed ahead: %s", error)
