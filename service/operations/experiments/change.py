"""A user changes the spec of an experiment."""

from typing import Any

from service.domain.end_reasons import EXPERIMENT_REVIVALS, EndReason
from service.operations.early_stopping.recorded_milestones import catching_up
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.early_stopping.rule_choice import choose_after_change
from service.operations.experiments.experiment_end import (
    advance_experiment,
    begin_ending,
    check_not_ended,
)
from service.operations.experiments.revival import (
    AFTER_THE_END,
    changeable_after_end,
    is_limit_moved,
    revive_by_change,
    revive_search,
    target_reached,
)
from service.operations.locked_experiment import LockedExperiment, lock_named
from service.operations.plugin_rule_errors import refused_failures
from service.operations.stored_spec_change import store_spec
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.specification.changeable_fields import Difference, changed_spec
from service.specification.models import ExperimentSpec
from service.store.experiments import has_ended_search
from service.store.lookup import experiment_named
from service.store.tables import ExperimentRow


def change(context: Context, name_or_id: str, patch: Any) -> ExperimentRow:
    """Merges the patch into the spec, with one event per changed field. The new limits apply immediately.

    An experiment that a limit has ended runs again when the patch raises that limit. Raises NotFound, Invalid with
    every mistake, and WrongState for an experiment that has ended otherwise or is ending.
    """
    with context.database.read() as session:
        seen = spec_of(experiment_named(session, name_or_id))
    after = changed_spec(seen, patch)  # before the transaction, because a large patch takes long
    with refused_failures(after.early_stopping):
        experiment = _change(context, name_or_id, patch, seen, after)
    context.notify_all()
    return experiment


@catching_up
def _change(
    context: Context, name_or_id: str, patch: Any, seen: ExperimentSpec, after_seen: ExperimentSpec
) -> ExperimentRow:
    """`after_seen` is what the patch makes of the spec that was `seen`."""
    with context.database.write() as session:
        locked = lock_named(session, name_or_id)
        experiment = locked.experiment
        if experiment.ended_at is None:
            check_not_ended(experiment, _changeable_after_its_end(experiment))
        before = spec_of(experiment)
        after = after_seen if before == seen else changed_spec(before, patch)
        if after != before:
            _apply(locked, before, after)
        return experiment


def _apply(locked: LockedExperiment, before: ExperimentSpec, after: ExperimentSpec) -> None:
    experiment, changes = locked.experiment, store_spec(locked, before, after)
    experiment.tags, experiment.priority = dict(after.tags), after.priority
    if not _fields(changes) <= AFTER_THE_END:
        after = choose_after_change(locked, before, after)
    if after.early_stopping != before.early_stopping:
        rebuild_milestones(locked, after)
    if experiment.ended_at is None:
        is_moved = has_ended_search(experiment) and is_limit_moved(experiment, before, after, changes)
        if after.objectives != before.objectives and (reached := target_reached(locked, after)):
            begin_ending(locked, EndReason.TARGET_REACHED, reached)
        if is_moved:
            revive_search(locked, before, after)
        advance_experiment(locked, after)
    elif not _fields(changes) <= changeable_after_end(experiment):
        revive_by_change(locked, before, after, changes)


def _changeable_after_its_end(experiment: ExperimentRow) -> str:
    if experiment.end_reason in EXPERIMENT_REVIVALS:
        return "can be changed when it has ended"
    fields = ", ".join(sorted(changeable_after_end(experiment)))
    return f"only its {fields} can be changed, when it has ended"


def _fields(changes: list[Difference]) -> set[str]:
    return {one.field.partition(".")[0] for one in changes}
