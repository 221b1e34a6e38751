"""Rebuilds the milestones of an experiment when its early-stopping rule changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from search.analysis.replay import add_to_history
from search.early_stopping import UNCOMPARED, InMemoryHistory, Rule
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.plugin_rules import has_trait
from service.domain.statuses import TrialStatus
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.early_stopping.replay_events import KINDS, replay_events, without_discarded
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import move_trial
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import stored_brackets
from service.store.early_stopping.milestones import replace_milestones
from service.store.events import events_of_kinds
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.param_generations import Exploit, exploits_of
from service.store.trials.trials import is_of_search


@dataclass
class RecordedMilestones:
    """The milestones that the trials of an experiment have reached by a rule, up to an event."""

    rule: Rule
    metric: ComparedMetric
    last_event: int = 0
    history: InMemoryHistory = field(default_factory=InMemoryHistory)
    _exploits: Mapping[str, Sequence[Exploit]] = field(default_factory=dict)

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


def recorded_milestones(
    database: Database, name_or_id: str, before: ExperimentSpec, after: ExperimentSpec
) -> RecordedMilestones | None:
    """What `rebuild_milestones` needs, so that the experiment need not be locked while all of its reports are read.

    None if the rule stays.
    """
    if after.early_stopping == before.early_stopping:
        return None
    with database.read() as session:
        experiment = experiment_named(session, name_or_id)
    found = RecordedMilestones(after.early_stopping, after.compared_metric)
    found.catch_up(database.read, experiment)
    return found


def rebuild_milestones(locked: LockedExperiment, spec: ExperimentSpec, known: RecordedMilestones | None = None) -> None:
    """Derive the milestones of the new rule from the recorded reports. No earlier report is judged again.

    A paused trial now waits at the highest milestone of the new rule that it has reached; if there is none, it
    continues.
    """
    session, experiment = locked.session, locked.experiment
    rule, metric = spec.early_stopping, spec.compared_metric
    if known is None or (known.rule, known.metric) != (rule, metric):
        known = RecordedMilestones(rule, metric)
    trials = known.catch_up(lambda: nullcontext(session), experiment)
    replace_milestones(session, experiment, _rows(known.history, trials))
    for number, trial in trials.items():
        trial.judged_step = max(known.history.curves[number], default=None)  # also if ended: a user may retry it
        if trial.paused_milestone is not None:
            reached = known.history.reached[number] if has_trait(rule, "pauses") else {}
            compared = {at: (value, pool) for at, (value, pool) in reached.items() if pool != UNCOMPARED}
            _move_pause(locked, trial, compared)


def _move_pause(locked: LockedExperiment, trial: TrialRow, reached: dict[int, tuple[float, int]]) -> None:
    """A trial that still leaves for its pause is only marked; it continues once it has left."""
    if reached:
        trial.judged_step = trial.paused_milestone = max(reached)
        trial.paused_value, trial.paused_pool = reached[trial.paused_milestone]
        return
    trial.paused_milestone = trial.paused_value = None
    if trial.status == TrialStatus.PAUSED:
        move_trial(locked, trial, TrialStatus.QUEUED, reason=RULE_CHANGED)


def _rows(history: InMemoryHistory, trials: Mapping[int, TrialRow]) -> Iterator[tuple[str, int, int, float, int]]:
    for number, reached in history.reached.items():
        for milestone, (value, pool) in reached.items():
            yield trials[number].id, number, milestone, value, pool
