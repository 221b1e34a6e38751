"""Rebuilds the milestones of an experiment when its early-stopping rule changes."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext

from search.early_stopping import UNCOMPARED, InMemoryHistory, Rule
from search.early_stopping.plugin_rules import has_trait
from search.early_stopping.rules.rungs import Rungs
from service.domain.statuses import TrialStatus
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.early_stopping.recorded_milestones import known_milestones
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import move_trial
from service.specification.models import ExperimentSpec
from service.store.early_stopping.milestones import replace_milestones
from service.store.tables import TrialRow


def rebuild_milestones(locked: LockedExperiment, spec: ExperimentSpec) -> None:
    """Derive the milestones of the new rule from the recorded reports. No earlier report is judged again.

    A paused trial now waits at the highest milestone of the new rule that it has reached. If there is none, or it has
    come to the rule's last step, it continues. Raises MilestonesMissing if so many reports are to be read that the
    caller must catch up first.
    """
    session, experiment, rule = locked.session, locked.experiment, spec.early_stopping
    known = known_milestones(locked, spec)
    trials = known.catch_up(lambda: nullcontext(session), experiment)
    replace_milestones(session, experiment, _rows(known.history, trials))
    for number, trial in trials.items():
        trial.judged_step = max(known.history.curves[number], default=None)  # also if ended: a user may retry it
        if trial.paused_milestone is not None:
            may_wait = has_trait(rule, "pauses") and not _has_come_to_end(rule, trial)
            reached = known.history.reached[number] if may_wait else {}
            compared = {at: (value, pool) for at, (value, pool) in reached.items() if pool != UNCOMPARED}
            _move_pause(locked, trial, compared)


def _has_come_to_end(rule: Rule, trial: TrialRow) -> bool:
    """Whether the trial was paused at its last step, before the rule knew which one that is."""
    return isinstance(rule, Rungs) and rule.last_step is not None and (trial.last_step or 0) >= rule.last_step


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
