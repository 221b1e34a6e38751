"""The search's view of each experiment: a cache of the history in SQL, rebuilt from it at any time."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from search.analysis.warm_start import from_json, still_fitting
from search.problem import SpaceExhausted
from search.space.narrowed_space import inside
from search.space.space import Params
from search.study import StudyView
from service.runtime.observations import observation_of, study_of
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow, WarmStartRow
from service.store.trials import trials_changed_after

logger = logging.getLogger(__name__)

MAX_VIEWS = 64
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """What a trial is proposed for: its number, and the spec as it was last changed. A proposal holds for no other."""

    number: int
    spec_changed_at_event: int


@dataclass(frozen=True)
class Proposal:
    """What a trial gets, as long as the history is the one that `seen_event` was the last of."""

    place: Place
    seen_event: int
    params: Params


@dataclass
class _View:
    """The search as one version of the spec describes it."""

    spec: ExperimentSpec
    spec_changed_at_event: int
    study: StudyView
    seen_event: int = 0
    newest: Proposal | None = None

    def learn(self, trials: Sequence[TrialRow]) -> None:
        """What lies outside a space that has been narrowed is of no account any more."""
        seen = [observation_of(self.spec, trial) for trial in trials]
        narrowed = self.spec_changed_at_event > 0
        self.study.update([one for one in seen if not narrowed or inside(self.spec.space, one.params)])
        self.seen_event = max([self.seen_event, *(trial.changed_at_event for trial in trials)])

    def propose(self, number: int) -> Proposal:
        newest, place = self.newest, Place(number, self.spec_changed_at_event)
        if newest is None or (newest.place, newest.seen_event) != (place, self.seen_event):
            newest = self.newest = Proposal(place, self.seen_event, self.study.propose([], number))
        return newest


@dataclass
class _Cached:
    view: _View | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)
    awaited: bool = False


class Proposals:
    """Proposes configurations; one at a time for an experiment, several experiments at once.

    What it computes ahead is a function of the same history, and given only while the history is that one: nobody can
    tell a proposal that was ready from one that was not, but by the time it took.
    """

    def __init__(self) -> None:
        self._views: OrderedDict[str, _Cached] = OrderedDict()
        self._guard = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="paceline-ahead")

    def propose(self, database: Database, experiment_id: str, number: int) -> Proposal:
        """The configuration of trial `number`, from all that is known now. Raises SpaceExhausted, NotFound."""
        return self._propose(self._cached(experiment_id), database, experiment_id, number)

    def newest(self, experiment_id: str) -> Proposal | None:
        """What was proposed last, which may hold no more. None while the next one is being computed."""
        cached = self._cached(experiment_id)
        if not cached.guard.acquire(blocking=False):
            return None
        try:
            return cached.view.newest if cached.view else None
        finally:
            cached.guard.release()

    def prepare(self, database: Database, experiment_id: str, next_number: Callable[[Session], int | None]) -> None:
        """Has the next proposal computed while nobody waits for it; `next_number` says whose, None: nobody's."""
        cached = self._cached(experiment_id)
        if not cached.awaited:
            cached.awaited = True
            with suppress(RuntimeError):  # closed: nobody will ask
                self._ahead.submit(self._prepare, cached, database, experiment_id, next_number)

    def close(self) -> None:
        """Nothing is computed ahead any more; what is being computed is waited for, but not for long."""
        ending = threading.Thread(target=self._ahead.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)

    def _prepare(
        self, cached: _Cached, database: Database, experiment_id: str, next_number: Callable[[Session], int | None]
    ) -> None:
        cached.awaited = False
        try:
            with database.read() as session:
                number = next_number(session)
            if number is not None:
                self._propose(cached, database, experiment_id, number)
        except SpaceExhausted:
            pass  # whoever asks is told
        except Exception as error:  # noqa: BLE001 - whoever asks will meet it, and ends the experiment with it
            logger.info("nothing was proposed ahead for experiment %s: %s", experiment_id, error)

    def _propose(self, cached: _Cached, database: Database, experiment_id: str, number: int) -> Proposal:
        with cached.guard:
            with database.read() as session:
                changed_at_event = _spec_changed_at_event(session, experiment_id)
                if cached.view is None or cached.view.spec_changed_at_event != changed_at_event:
                    cached.view = _view(session, experiment_id)
                changed = trials_changed_after(session, experiment_id, cached.view.seen_event)
            cached.view.learn(changed)
            return cached.view.propose(number)

    def _cached(self, experiment_id: str) -> _Cached:
        with self._guard:
            cached = self._views.setdefault(experiment_id, _Cached())
            self._views.move_to_end(experiment_id)
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
            return cached


def _spec_changed_at_event(session: Session, experiment_id: str) -> int | None:
    return session.scalar(select(ExperimentRow.spec_changed_at_event).where(ExperimentRow.id == experiment_id))


def _view(session: Session, experiment_id: str) -> _View:
    """Without a trial yet. Its spec and the event that made it so come from one look."""
    experiment = experiment_named(session, experiment_id)
    spec = spec_of(experiment)
    study = study_of(spec, experiment_id)
    warm = session.get(WarmStartRow, experiment_id) if spec.search.warm_start else None
    known = still_fitting(study, from_json(warm.observations)) if warm else []
    return _View(spec, experiment.spec_changed_at_event, StudyView(study, known))
