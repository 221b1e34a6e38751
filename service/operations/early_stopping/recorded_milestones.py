"""The milestones that trials have reached by a rule which their experiment is to get, from the recorded reports.

These are read before the transaction that changes the rule, so that the experiment is not locked meanwhile: the
transaction raises `MilestonesMissing`, which rolls it back, and is repeated after `catch_up`. Only what was recorded
since is read under the lock. Nothing is stored before that: what is decided does not depend on who has caught up.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from cachetools import LRUCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from search.analysis.replay import add_to_history
from search.early_stopping import InMemoryHistory, Rule
from search.early_stopping.compared_metric import ComparedMetric
from service.errors import Unavailable
from service.operations.early_stopping.replay_events import KINDS, replay_events, without_discarded
from service.operations.locked_experiment import LockedExperiment
from service.runtime.context import Context
from service.store.early_stopping.history import stored_brackets
from service.store.events import events_of_kinds
from service.store.sql.process_caches import process_caches
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.param_generations import Exploit, exploits_of
from service.store.trials.trials import is_of_search

MAX_LOCKED_EVENTS = 1000
"""The most events that are read under the lock: about a tenth of a second."""
MAX_KEPT = 4
"""Of so many, a process keeps milestones that no transaction has used yet: they hold all values."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class MilestonesMissing(Exception):
    """A transaction is to give the experiment this rule, and would have to read too many reports under the lock."""

    def __init__(self, experiment_id: str, rule: Rule, metric: ComparedMetric) -> None:
        super().__init__(f"the milestones of experiment {experiment_id} by the rule {rule.rule} are not known yet")
        self.experiment_id, self.rule, self.metric = experiment_id, rule, metric


@dataclass
class RecordedMilestones:
    """The milestones that the trials of an experiment have reached by a rule, up to an event."""

    rule: Rule
    metric: ComparedMetric
    last_event: int = 0
    history: InMemoryHistory = field(default_factory=InMemoryHistory)
    _exploits: Mapping[str, Sequence[Exploit]] = field(default_factory=dict)

    def is_behind(self, experiment: ExperimentRow) -> bool:
        """Whether too much was recorded since to read it under the experiment's lock."""
        return experiment.event_count - self.last_event > MAX_LOCKED_EVENTS

    def catch_up(
        self, open_session: Callable[[], AbstractContextManager[Session]], experiment: ExperimentRow
    ) -> dict[int, TrialRow]:
        """Add what was recorded up to the experiment's newest event. Return the trials by number."""
        with open_session() as session:
            of_experiment = TrialRow.experiment_id == experiment.id
            trials = session.scalars(select(TrialRow).where(of_experiment, is_of_search())).all()
            exploits = exploits_of(session, experiment.id)
        if exploits != self._exploits:  # an exploit discards earlier reports
            self.history, self.last_event, self._exploits = InMemoryHistory(), 0, exploits
        numbers, newest = {trial.id: trial.number for trial in trials}, experiment.event_count
        recorded = events_of_kinds(open_session, experiment.id, KINDS, newest, after=self.last_event)
        events = replay_events(without_discarded(recorded, exploits), numbers, self.metric.name)
        add_to_history(self.history, self.rule, self.metric, events, stored_brackets(trials))
        self.last_event = newest
        return {trial.number: trial for trial in trials}


class CaughtUpMilestones:
    """What a process has caught up with, by experiment, until a transaction uses it. Thread-safe.

    Who takes milestones owns them: after a rollback, they have events that were not stored.
    """

    def __init__(self) -> None:
        self._known: MutableMapping[str, RecordedMilestones] = LRUCache(MAX_KEPT)
        self._lock = Lock()

    def take(self, experiment_id: str, rule: Rule, metric: ComparedMetric) -> RecordedMilestones:
        """Return new ones, without any event, if none are kept for the rule."""
        with self._lock:
            known = self._known.pop(experiment_id, None)
        if known is None or (known.rule, known.metric) != (rule, metric):
            return RecordedMilestones(rule, metric)
        return known

    def keep(self, experiment_id: str, milestones: RecordedMilestones) -> None:
        with self._lock:
            self._known[experiment_id] = milestones


def known_milestones(locked: LockedExperiment, rule: Rule, metric: ComparedMetric) -> RecordedMilestones:
    """Return milestones with which the caller can catch up in its transaction. Raises MilestonesMissing."""
    experiment, caught_up = locked.experiment, process_caches(locked.session).of(CaughtUpMilestones)
    known = caught_up.take(experiment.id, rule, metric)
    if known.is_behind(experiment):
        caught_up.keep(experiment.id, known)
        raise MilestonesMissing(experiment.id, rule, metric)
    return known


def catch_up(context: Context, missing: MilestonesMissing) -> None:
    """Read what the transaction has missed. Without effect if the experiment is gone.

    Raises Unavailable while the service stops.
    """
    with context.database.read() as session:
        experiment = session.get(ExperimentRow, missing.experiment_id)
        caught_up = process_caches(session).of(CaughtUpMilestones)  # before what is kept there is read
    if experiment is None:
        return
    known = caught_up.take(experiment.id, missing.rule, missing.metric)
    if known.is_behind(experiment):
        known.catch_up(partial(_read, context), experiment)
    caught_up.keep(experiment.id, known)


def _read(context: Context) -> AbstractContextManager[Session]:
    if context.stopping.is_set():
        raise Unavailable("the service stops; repeat the call")
    return context.database.read()


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
