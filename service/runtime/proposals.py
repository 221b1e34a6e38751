"""Proposes configurations from the cached study of each experiment, which can be rebuilt from SQL at any time."""

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cachetools import LRUCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from search.problem import Observation, SpaceExhausted
from search.space.narrowed_space import inside
from search.space.space import Params
from search.study import Study, StudyView
from search.warm_starts.proposer import Contribution
from search.warm_starts.trial_selection import from_json, still_fitting
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.computation.numeric_libraries import limit_threads
from service.runtime.observations.observations import observation_of, seed_of, with_rungs
from service.specification.models import ExperimentSpec
from service.store.early_stopping.milestones import ReachedMilestone, milestones_changed_after
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.sql.process_caches import cache_epoch
from service.store.tables import ExperimentRow, TrialRow, WarmStartRow
from service.store.trials.trials import trials_changed_after
from trainer.process_log.context import log_context

logger = logging.getLogger(__name__)

MAX_VIEWS = 64
PATIENCE_SECONDS = 2.0
"""How long a call waits for another one's proposal. It has one of the few threads that all experiments share."""
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class ProposalTarget:
    """What a proposal is made for; it is valid for no other.

    The number of the trial, the version of the spec, and the epoch of the process's caches.
    """

    number: int
    spec_changed_at_event: int
    cache_epoch: int


@dataclass(frozen=True)
class Proposal:
    """A configuration for `target`, proposed from the history up to event `seen_event`.

    `source` is what it comes from, `estimate` what the sampler's model expects of it, and `warm_start` what earlier
    experiments have to do with it. `seen_milestone` is the last change of the experiment's milestones that it is based
    on; None if it needs none. `may_be_outdated`: it is from before the claim that it is offered to, and the history may
    have changed since.
    """

    target: ProposalTarget
    seen_event: int
    params: Params
    source: str
    estimate: dict[str, Any] | None
    warm_start: Contribution
    seen_milestone: int | None = None
    may_be_outdated: bool = False


@dataclass
class _View:
    """A study of the experiment under one version of its spec, and one epoch of the process's caches.

    `observations` are its trials, and `milestones` those that they have reached, both by trial number. They are kept
    for the curve score, because trials reach milestones without another change.
    """

    spec: ExperimentSpec
    spec_changed_at_event: int
    cache_epoch: int
    study: StudyView
    seen_event: int = 0
    seen_milestone: int = 0
    newest: Proposal | None = None
    has_library: bool = False
    observations: dict[int, Observation] = field(default_factory=dict)
    milestones: defaultdict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def propose(self, trials: Sequence[TrialRow], milestones: Sequence[ReachedMilestone], number: int) -> Proposal:
        """`trials` have changed since the last proposal, and `milestones` were reached."""
        newest, target = self.newest, ProposalTarget(number, self.spec_changed_at_event, self.cache_epoch)
        if newest is not None and newest.target == target and not (trials or milestones):
            return newest
        seen = self._learn(trials, milestones)
        seen_event = max([self.seen_event, *(trial.changed_at_event for trial in trials)])
        seen_milestone = max([self.seen_milestone, *(row.change for row in milestones)])
        needed = seen_milestone if self.study.scores_curves else None
        params = self.study.propose(seen, number)
        self.newest = Proposal(
            target,
            seen_event,
            params,
            self.study.source(number),
            self.study.estimate(number, params),
            self.study.contribution(number),
            needed,
        )
        self.seen_event, self.seen_milestone = seen_event, seen_milestone
        return self.newest

    def _learn(self, trials: Sequence[TrialRow], milestones: Sequence[ReachedMilestone]) -> list[Observation]:
        """What is new for the search. It ignores trials outside of a space that was narrowed, and confirmations."""
        for row in milestones:
            self.milestones[row.number][row.milestone] = row.value
        rows = {trial.number: observation_of(self.spec, trial) for trial in trials if trial.confirms is None}
        found = list(rows.values())
        if self.study.scores_curves:
            self.observations |= rows
            numbers = {*rows, *(row.number for row in milestones)} & self.observations.keys()
            found = [with_rungs(self.spec, self.observations[number], self.milestones) for number in sorted(numbers)]
        if self.spec_changed_at_event == 0:
            return found
        return [one for one in found if inside(self.spec.space, one.params)]


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
    view: _View | None = None
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
        self._entries: MutableMapping[str, _Entry] = LRUCache(MAX_VIEWS)
        self._lock = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="paceline-ahead")

    def propose(self, experiment_id: str, number: int) -> Proposal:
        """Return the configuration of trial `number`, by all that is stored now. Raises SpaceExhausted, NotFound."""
        entry = self._entry(experiment_id)
        with entry.lock:
            with self._database.read() as session:
                view = _current_view(entry, session, experiment_id)
                trials = trials_changed_after(session, experiment_id, view.seen_event)
                milestones: Sequence[ReachedMilestone] = ()
                if view.study.scores_curves:
                    milestones = milestones_changed_after(session, experiment_id, view.seen_milestone)
            return view.propose(trials, milestones, number)

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
            newest = entry.view.newest if entry.view else None
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
        if entry.view is None:
            with entry.lock, self._database.read() as session:
                _current_view(entry, session, experiment_id)
        view = entry.view
        if view is not None and not view.has_library:
            view.study.import_library()
            limit_threads()
            view.has_library = True

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


def _current_view(entry: _Entry, session: Session, experiment_id: str) -> _View:
    """A new one if the spec has changed, or the database may have lost trials. Call it with the entry's lock."""
    changed = session.scalar(select(ExperimentRow.spec_changed_at_event).where(ExperimentRow.id == experiment_id))
    version = cache_epoch(session), changed
    if entry.view is None or (entry.view.cache_epoch, entry.view.spec_changed_at_event) != version:
        entry.view = _empty_view(session, experiment_id)
    return entry.view


def _empty_view(session: Session, experiment_id: str) -> _View:
    """A view without trials. The spec and the event of its last change are read in one query."""
    epoch = cache_epoch(session)
    experiment = experiment_named(session, experiment_id)
    spec = spec_of(experiment)
    study = Study(spec.problem, spec.search, seed_of(spec, experiment_id))
    warm = session.get(WarmStartRow, experiment_id) if spec.search.warm_start else None
    known = still_fitting(spec.problem, spec.search, from_json(warm.observations)) if warm else []
    return _View(spec, experiment.spec_changed_at_event, epoch, StudyView(study, known))
