"""An experiment that has ended runs again: a user raises the limit that ended it, or takes back a stop."""

import math
from dataclasses import dataclass

from search.early_stopping.plugin_rules import has_trait
from service.domain.end_reasons import CONFIRMED_ENDS, EXPERIMENT_REVIVALS, REVIVED_BY, EndReason
from service.domain.statuses import TrialStatus
from service.errors import WrongState
from service.operations.experiments.confirmation import RUNS_AGAIN, due_confirmations
from service.operations.experiments.end_check import find_end
from service.operations.experiments.experiment_end import (
    advance_experiment,
    begin_ending,
    how_to_continue,
    how_to_follow,
)
from service.operations.experiments.limits_after_failures import limits_after_failures
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import revive_experiment, revive_trial
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.targets_and_constraints import targets_reached
from service.specification.changeable_fields import Difference
from service.specification.models import ExperimentSpec
from service.store.tables import ExperimentRow
from service.store.trials.confirmations import confirmations_of
from service.store.trials.ended_trials import stopped_by_experiment_end
from service.store.trials.param_generations import has_own_values
from service.store.trials.trials import trials_with_values

AFTER_THE_END = {"tags", "priority", "checkpoints"}
"""Fields that may change after the experiment has ended, without making it run again."""

LIMITS = {"limits", "failures", "objectives"}
"""Fields with the limits and targets that end an experiment."""

FIELDS_THAT_REVIVE: dict[str | None, tuple[str, ...]] = {
    EndReason.MAX_TRIALS: ("limits.max_trials",),
    EndReason.MAX_SECONDS: ("limits.max_seconds",),
    EndReason.MAX_GPU_HOURS: ("limits.max_gpu_hours",),
    EndReason.TARGET_REACHED: ("objectives",),
    EndReason.NO_IMPROVEMENT: ("limits.no_improvement",),
    EndReason.TOO_MANY_FAILURES: ("failures.max_failed_trials", "limits.max_trials"),
}
"""The fields that `REVIVED_BY` describes. No other change lets an ended experiment, or an ended search, continue."""


@dataclass(frozen=True)
class EndsAgain:
    """Why the search would end again immediately. `why` has the reason in words, and what to change."""

    reason: EndReason
    detail: str | None
    why: str


def take_back_stop(locked: LockedExperiment) -> None:
    """Let an experiment continue that a user has stopped or cancelled.

    Raises WrongState if it would end again immediately. Its limits may be changed before.
    """
    spec = spec_of(locked.experiment)
    remaining = _why_it_would_end(locked, spec, spec)
    _revive(locked, spec, remaining)
    advance_experiment(locked, spec)


def revive_by_change(
    locked: LockedExperiment, before: ExperimentSpec, spec: ExperimentSpec, changes: list[Difference]
) -> None:
    """Raises WrongState unless the change lifts the reason why the experiment ended and gives no other."""
    experiment = locked.experiment
    if experiment.end_reason == EndReason.USER:
        raise _refusal(experiment, f"; to change another field than these, first {how_to_continue(experiment)}")
    if experiment.end_reason not in EXPERIMENT_REVIVALS:
        raise _refusal(experiment, f", which is final; {how_to_follow(experiment)}")
    remaining = _why_it_would_end(locked, before, spec)
    is_moved = is_limit_moved(experiment, before, spec, changes)
    if not is_moved and (remaining is None or remaining.reason != experiment.end_reason):
        raise _refusal(experiment, f"; to continue it, change {REVIVED_BY[EndReason(experiment.end_reason)]}")
    if remaining is not None and not is_moved:
        raise _refused_as_over(experiment, remaining)
    _revive(locked, spec, remaining)


def _revive(locked: LockedExperiment, spec: ExperimentSpec, remaining: EndsAgain | None) -> None:
    """Let an ended experiment go on with its search, or else with its winners' confirmations. Raises WrongState."""
    if remaining is None or _any_trial_was_stopped(locked, remaining):
        _revive_trials(locked)
    elif remaining.reason in CONFIRMED_ENDS and due_confirmations(locked, spec).any_left:
        revive_experiment(locked)
        begin_ending(locked, remaining.reason, remaining.detail)
        advance_experiment(locked, spec)
    else:
        raise _refused_as_over(locked.experiment, remaining)


def revive_search(locked: LockedExperiment, before: ExperimentSpec, spec: ExperimentSpec) -> None:
    """Raises WrongState if the search would end again, and no more of its winners' confirmations may run either."""
    remaining = _why_it_would_end(locked, before, spec)
    if remaining is None:
        _revive_trials(locked)
    elif not _lets_confirmations_run(locked, spec):
        raise _refused_as_over(locked.experiment, remaining)


def _any_trial_was_stopped(locked: LockedExperiment, remaining: EndsAgain) -> bool:
    """Whether only new trials have no room, and there are others that the end of the experiment had stopped."""
    return remaining.reason is EndReason.MAX_TRIALS and bool(
        stopped_by_experiment_end(locked.session, locked.experiment.id)
    )


def _revive_trials(locked: LockedExperiment) -> None:
    """Trials that the experiment's end had stopped go on, too. Confirmations do when the search has ended again."""
    revive_experiment(locked)
    for trial in stopped_by_experiment_end(locked.session, locked.experiment.id):
        revive_trial(locked, trial, TrialStatus.QUEUED, reason=RUNS_AGAIN)


def _refused_as_over(experiment: ExperimentRow, remaining: EndsAgain) -> WrongState:
    return _refusal(experiment, f" and would end again immediately: {remaining.why}")


def _refusal(experiment: ExperimentRow, why: str) -> WrongState:
    return WrongState(
        f"experiment {experiment.name} is {experiment.status} ({experiment.end_reason}){why}",
        experiment_status=experiment.status,
        end_reason=experiment.end_reason,
        allowed=sorted(changeable_after_end(experiment)),
    )


def is_limit_moved(
    experiment: ExperimentRow, before: ExperimentSpec, after: ExperimentSpec, changes: list[Difference]
) -> bool:
    """Whether the limit that has ended the search or the experiment was moved, so that it may go on.

    A lower `max_trials` leaves no more trials, and only fewer confirmations.
    """
    most = math.inf if before.limits.max_trials is None else before.limits.max_trials
    is_lowered = after.limits.max_trials is not None and after.limits.max_trials < most
    is_in_vain = experiment.end_reason == EndReason.MAX_TRIALS and is_lowered
    return _changes_what_ended_it(experiment, changes) and not is_in_vain


def _changes_what_ended_it(experiment: ExperimentRow, changes: list[Difference]) -> bool:
    fields = FIELDS_THAT_REVIVE.get(experiment.end_reason, ())
    return any(one.field.startswith(fields) for one in changes)


def _lets_confirmations_run(locked: LockedExperiment, spec: ExperimentSpec) -> bool:
    """Whether `max_trials`, which was too low for all confirmations of the winners, now has room for more of them."""
    if spec.confirm is None:
        return False
    known, most = confirmations_of(locked.session, [locked.experiment.id]), spec.limits.max_trials
    return len(known) < spec.confirm.trial_count and (most is None or most > locked.experiment.trial_count)


def _why_it_would_end(locked: LockedExperiment, before: ExperimentSpec, spec: ExperimentSpec) -> EndsAgain | None:
    """Why the search would end again immediately; None if it can continue.

    A reason that lets no confirmations run either comes first.
    """
    experiment, end = locked.experiment, find_end(locked, spec)
    only_search = end is None or end.reason in CONFIRMED_ENDS
    if only_search and (reached := target_reached(locked, spec)) is not None:
        also = _also(experiment, EndReason.TARGET_REACHED)
        why = f"{reached}; to continue it, change {REVIVED_BY[EndReason.TARGET_REACHED]}{also}"
        return EndsAgain(EndReason.TARGET_REACHED, reached, why)
    if end is None:
        return None
    also = _also(experiment, end.reason)
    advice = f"; to continue it, change {REVIVED_BY[end.reason]}{also}" if end.reason in REVIVED_BY else ""
    if end.reason is EndReason.MAX_TRIALS and spec.confirm is not None:
        least = experiment.trial_count + spec.confirm.trial_count + 1
        advice = f"; to continue it, set limits.max_trials to at least {least} (confirmations count, too){also}"
    if end.reason is EndReason.TOO_MANY_FAILURES and (helpful := limits_after_failures(locked, before)):
        advice = f"; to continue it, set {helpful}{also}"
    return EndsAgain(end.reason, end.detail, f"{end.reason}: {end.detail}{advice}")


def _also(experiment: ExperimentRow, reason: EndReason) -> str:
    """Where another limit has been passed than the one that ended the experiment, both must be moved together."""
    own = EndReason(str(experiment.end_reason))
    if own is EndReason.USER:
        return f", then {how_to_continue(experiment)}"
    return "" if reason is own else f", together with {REVIVED_BY[own]}"


def changeable_after_end(experiment: ExperimentRow) -> set[str]:
    """Fields that may change after the end, without making the experiment run again."""
    return AFTER_THE_END | LIMITS if experiment.end_reason == EndReason.USER else AFTER_THE_END


def target_reached(locked: LockedExperiment, spec: ExperimentSpec) -> str | None:
    if all(one.target is None for one in spec.objectives):
        return None
    # A paused trial that has lost is never the best, so it can reach no target either.
    with_paused = not has_trait(spec.early_stopping, "paused_trials_lose")
    for trial in trials_with_values(locked.session, locked.experiment.id, with_paused=with_paused):
        sentence = targets_reached(spec, trial)
        if sentence is not None and has_own_values(locked.session, trial):
            return f"trial {trial.number}: {sentence}"
    return None
