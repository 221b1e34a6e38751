"""Changing the spec of an experiment that lives, or is to live again."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.domain.statuses import EXPERIMENT_REVIVALS, EndReason
from service.errors import WrongState
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.experiments.termination import advance_experiment, begin_ending, check_not_ended, why_end
from service.operations.transitions import revive_experiment
from service.runtime.context import Context
from service.runtime.objective_values import targets_reached
from service.runtime.spec_cache import spec_of
from service.specification.changes import changed_spec, differences
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.lookup import locked_experiment
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from service.store.trials import trials_with_values

LABELS = {"tags", "priority"}
"""What may be changed of an experiment that is over, and leaves it so."""


def change(context: Context, name_or_id: str, patch: Any) -> ExperimentRow:
    """Merges the patch into the spec; each field that differs is an event. What it asks for is acted upon at once.

    An experiment that has ended by a limit runs again when that limit is moved. Raises NotFound, Invalid with every
    mistake, and WrongState for an experiment that is over and stays so.
    """
    with context.database.write() as session:
        experiment = locked_experiment(session, name_or_id)
        if experiment.ended_at is None:
            check_not_ended(experiment, "can be changed when it has ended")
        before = spec_of(experiment)
        after = changed_spec(before, patch)
        if after != before:
            _store(session, experiment, before, after, database_now(session))
    context.notify_all()
    return experiment


def _store(
    session: Session, experiment: ExperimentRow, before: ExperimentSpec, after: ExperimentSpec, now: datetime
) -> None:
    changes = differences(before, after)
    experiment.spec = after.model_dump(mode="json")
    experiment.tags, experiment.priority = dict(after.tags), after.priority
    for one in changes:
        data = {"field": one.field, "before": one.before, "after": one.after}
        experiment.spec_changed_at_event = append_event(session, experiment, "experiment.changed", data, at=now)
    if after.early_stopping != before.early_stopping:
        rebuild_milestones(session, experiment, after, now)
    if experiment.ended_at is None:
        _settle(session, experiment, after, now, targets_moved=after.objectives != before.objectives)
    elif not {one.field.partition(".")[0] for one in changes} <= LABELS:
        _reopen(session, experiment, after, now)


def _settle(
    session: Session, experiment: ExperimentRow, spec: ExperimentSpec, now: datetime, *, targets_moved: bool
) -> None:
    """A limit or a target that was moved may have been passed already."""
    if targets_moved and (reached := _target_reached(session, experiment, spec)):
        begin_ending(session, experiment, EndReason.TARGET_REACHED, now, reached)
    advance_experiment(session, experiment, spec, now)


def _reopen(session: Session, experiment: ExperimentRow, spec: ExperimentSpec, now: datetime) -> None:
    """Raises WrongState unless what ended it, and whatever else would, is out of the way now."""
    was = f"experiment {experiment.name} is {experiment.status} ({experiment.end_reason})"
    facts = {"experiment_status": experiment.status, "end_reason": experiment.end_reason, "allowed": sorted(LABELS)}
    if experiment.end_reason not in EXPERIMENT_REVIVALS:
        new = f'{{"search": {{"warm_start": ["{experiment.name}"]}}}}'
        raise WrongState(f"{was}, which is for good; a new one can learn from its trials: {new}", **facts)
    reached, ending = _target_reached(session, experiment, spec), why_end(session, experiment, spec, now)
    if reached or ending:
        again = reached or (f"{ending[0]}: {ending[1]}" if ending else "")
        raise WrongState(f"{was} and would end again at once: {again}; move that limit to have it go on", **facts)
    revive_experiment(session, experiment, at=now)


def _target_reached(session: Session, experiment: ExperimentRow, spec: ExperimentSpec) -> str | None:
    if all(one.target is None for one in spec.objectives):
        return None
    for trial in trials_with_values(session, experiment.id):
        if (sentence := targets_reached(spec, trial)) is not None:
            return f"trial {trial.number}: {sentence}"
    return None
