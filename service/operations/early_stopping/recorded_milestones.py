"""The milestones that trials have reached by a rule which their experiment is to get, from the recorded reports.

These are read before the transaction that changes the rule, so that the experiment is not locked meanwhile: the
transaction raises `MilestonesMissing`, which rolls it back, and is repeated after `catch_up`. Only what was recorded
since is read under the lock. Nothing is stored before that: what is decided does not depend on who has caught up.
"""

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from cachetools import LRUCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from search.analysis.replay import add_to_history
from search.early_stopping import InMemoryHistory
from service.errors import Unavailable
from service.operations.early_stopping.replay_events import KINDS, StopRequests, replay_events, without_discarded
from service.operations.locked_experiment import LockedExperiment
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import stored_brackets
from service.store.events import events_of_kinds
from service.store.sql.process_caches import process_caches
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.param_generations import Exploit, exploits_of
from service.store.trials.trials import is_of_search

MAX_LOCKED_EVENTS = 1000
"""The most events that are read under the lock, at the first try: about a tenth of a second."""
MAX_KEPT = 4
"""Of so many, a process keeps milestones that no transaction has used yet: they hold all values."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class MilestonesMissing(Exception):
    """A transaction is to store this spec, and would have to read too many reports under the lock."""

    def __init__(self, experiment_id: str, spec: ExperimentSpec) -> None:
        rule = spec.early_stopping.rule
        super().__init__(f"the milestones of experiment {experiment_id} by the rule {rule} are not known yet")
        self.experiment_id, self.spec = experiment_id, spec


@dataclass
class RecordedMilestones:
    """The milestones that the trials of an experiment have reached by the rule of a spec, up to an event."""

    spec: ExperimentSpec
    rounds: int = 0
    last_event: int = 0
    history: InMemoryHistory = field(default_factory=InMemoryHistory)
    _exploits: Mapping[str, Sequence[Exploit]] = field(default_factory=dict)
    _requests: StopRequests = field(init=False)

    def __post_init__(self) -> None:
        self._begin({})

    def is_behind(self, session: Session, experiment: ExperimentRow) -> bool:
        """Whether too much is to be read under the experiment's lock.

        With each round of catching up that was not enough, more may be read: reports that come faster than they are
        read do not keep the transaction waiting without end.
        """
        known = self.last_event if exploits_of(session, experiment.id) == self._exploits else 0
        return experiment.event_count - known > MAX_LOCKED_EVENTS << self.rounds

    def catch_up(
        self, open_session: Callable[[], AbstractContextManager[Session]], experiment: ExperimentRow
    ) -> dict[int, TrialRow]:
        """Add what was recorded up to the experiment's newest event. Return the trials by number."""
        with open_session() as session:
            of_experiment = TrialRow.experiment_id == experiment.id
            trials = session.scalars(select(TrialRow).where(of_experiment, is_of_search())).all()
            exploits = exploits_of(session, experiment.id)
        if exploits != self._exploits:  # an exploit discards earlier reports
            self._begin(exploits)
        numbers, newest = {trial.id: trial.number for trial in trials}, experiment.event_count
        recorded = events_of_kinds(open_session, experiment.id, KINDS, newest, after=self.last_event)
        rule, metric = self.spec.early_stopping, self.spec.compared_metric
        events = replay_events(without_discarded(recorded, exploits), numbers, metric.name, self._requests)
        add_to_history(self.history, rule, metric, events, stored_brackets(trials))
        self.last_event = newest
        return {trial.number: trial for trial in trials}

    def _begin(self, exploits: Mapping[str, Sequence[Exploit]]) -> None:
        self.history, self.last_event, self._exploits = InMemoryHistory(), 0, exploits
        self._requests = StopRequests.of(self.spec.objective_metrics)


class CaughtUpMilestones:
    """What a process has caught up with, by experiment and rule, until a transaction uses it. Thread-safe.

    Who takes milestones owns them: after a rollback, they have events that were not stored.
    `turn`: one thread at a time reads a history, as several would not be faster.
    """

    def __init__(self) -> None:
        self.turn = Lock()
        self._known: MutableMapping[Hashable, RecordedMilestones] = LRUCache(MAX_KEPT)
        self._lock = Lock()

    def take(self, experiment_id: str, spec: ExperimentSpec) -> RecordedMilestones:
        """Return new ones, without any event, if none are kept for the rule."""
        with self._lock:
            known = self._known.pop(_key(experiment_id, spec), None)
        return RecordedMilestones(spec) if known is None else known

    def keep(self, experiment_id: str, milestones: RecordedMilestones) -> None:
        with self._lock:
            self._known[_key(experiment_id, milestones.spec)] = milestones


def _key(experiment_id: str, spec: ExperimentSpec) -> Hashable:
    return experiment_id, spec.early_stopping.model_dump_json(), tuple(spec.objective_metrics)


def known_milestones(locked: LockedExperiment, spec: ExperimentSpec) -> RecordedMilestones:
    """Return milestones with which the caller can catch up in its transaction. Raises MilestonesMissing."""
    experiment, caught_up = locked.experiment, process_caches(locked.session).of(CaughtUpMilestones)
    known = caught_up.take(experiment.id, spec)
    if known.is_behind(locked.session, experiment):
        caught_up.keep(experiment.id, known)
        raise MilestonesMissing(experiment.id, spec)
    return known


def catch_up(context: Context, missing: MilestonesMissing) -> None:
    """Read what the transaction has missed. Without effect if the experiment is gone.

    While another thread reads, wait for it instead: it may have read the same. Raises Unavailable while the service
    stops.
    """
    with context.database.read() as session:
        experiment = session.get(ExperimentRow, missing.experiment_id)
        caught_up = process_caches(session).of(CaughtUpMilestones)  # before what is kept there is read
    if experiment is None:
        return
    if not caught_up.turn.acquire(blocking=False):
        with caught_up.turn:
            return
    try:
        _catch_up(context, missing, experiment, caught_up)
    finally:
        caught_up.turn.release()


def _catch_up(
    context: Context, missing: MilestonesMissing, experiment: ExperimentRow, caught_up: CaughtUpMilestones
) -> None:
    known = caught_up.take(experiment.id, missing.spec)
    with context.database.read() as session:
        is_behind = known.is_behind(session, experiment)
    if is_behind:
        known.catch_up(partial(_read, context), experiment)
        known.rounds += 1
    caught_up.keep(experiment.id, known)


def _read(context: Context) -> AbstractContextManager[Session]:
    if context.stopping.is_set():
        raise Unavailable("the service stops; repeat the call")
    return context.database.read()


def forget_milestones(context: Context, missing: MilestonesMissing) -> None:
    """Free what was read for a call that has ended without it, as when another service has changed the rule."""
    context.database.process_caches.of(CaughtUpMilestones).take(missing.experiment_id, missing.spec)


def catching_up(
    transaction: Callable[Concatenate[Context, Parameters], Result],
) -> Callable[Concatenate[Context, Parameters], Result]:
    """Repeat the transaction until it misses no milestones. Each time but the first, another change came before it."""

    @wraps(transaction)
    def repeated(context: Context, /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        while True:
            try:
                return transaction(context, *arguments, **options)
            except MilestonesMissing as missing:
                catch_up(context, missing)

    return repeated
