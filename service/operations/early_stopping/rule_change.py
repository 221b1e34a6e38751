"""Rebuilds the milestones of an experiment when its early-stopping rule changes."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from search.analysis.replay import recorded_history
from search.early_stopping import UNCOMPARED, InMemoryHistory
from service.domain.statuses import TrialStatus
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.early_stopping.replay_events import KINDS, replay_events, without_discarded
from service.operations.transitions import move_trial
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import stored_brackets
from service.store.early_stopping.milestones import replace_milestones
from service.store.recorded_events import recorded_events
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.param_generations import exploits_of
from service.store.trials.trials import is_of_search


def rebuild_milestones(session: Session, experiment: ExperimentRow, spec: ExperimentSpec, now: datetime) -> None:
    """Derive the milestones of the new rule from the recorded reports. No earlier report is judged again.

    A paused trial now waits at the highest milestone of the new rule that it has reached; if there is none, it
    continues.
    """
    own = TrialRow.experiment_id == experiment.id
    trials = session.scalars(select(TrialRow).where(own, is_of_search())).all()
    numbers = {trial.id: trial.number for trial in trials}
    recorded = recorded_events(lambda: nullcontext(session), experiment.id, KINDS, experiment.event_count)
    counted = without_discarded(recorded, exploits_of(session, experiment.id))
    rule, metric = spec.early_stopping, spec.compared_metric
    brackets = stored_brackets(trials)
    history = recorded_history(rule, metric, replay_events(counted, numbers, metric.name), brackets)
    ids = {number: trial_id for trial_id, number in numbers.items()}
    replace_milestones(session, experiment, _rows(history, ids))
    for trial in trials:
        trial.judged_step = max(history.curves[trial.number], default=None)  # also if ended: a user may retry it
        if trial.paused_milestone is not None:
            reached = history.reached[trial.number] if rule.pauses else {}
            compared = {at: (value, pool) for at, (value, pool) in reached.items() if pool != UNCOMPARED}
            _move_pause(session, experiment, trial, compared, now)


def _move_pause(
    session: Session, experiment: ExperimentRow, trial: TrialRow, reached: dict[int, tuple[float, int]], now: datetime
) -> None:
    """A trial that still leaves for its pause is only marked; it continues once it has left."""
    if reached:
        trial.judged_step = trial.paused_milestone = max(reached)
        trial.paused_value, trial.paused_pool = reached[trial.paused_milestone]
        return
    trial.paused_milestone = trial.paused_value = None
    if trial.status == TrialStatus.PAUSED:
        move_trial(session, experiment, trial, TrialStatus.QUEUED, reason=RULE_CHANGED, at=now)


def _rows(history: InMemoryHistory, ids: dict[int, str]) -> Iterator[tuple[str, int, int, float, int]]:
    for number, reached in history.reached.items():
        for milestone, (value, pool) in reached.items():
            yield ids[number], number, milestone, value, pool
