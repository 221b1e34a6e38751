"""How an experiment ends: it gets a reason, its last running trials leave, then it gets its final status."""

from collections.abc import Collection

from service.domain.end_reasons import (
    CONFIRMED_ENDS,
    ENDS_THAT_LET_TRIALS_RUN,
    REVERSIBLE_ENDS,
    REVIVED_BY,
    STATUS_AFTER_END,
    EndReason,
)
from service.domain.statuses import LIVE_EXPERIMENT, StopCause, TrialStatus
from service.errors import WrongState
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import end_paused, release
from service.operations.experiments.confirmation import begin_confirmation, end_confirmation
from service.operations.experiments.end_check import find_end
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import move_experiment, move_trial, request_stop
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.experiments import has_ended_search, may_run_trials
from service.store.tables import ExperimentRow
from service.store.trials.trials import any_with, trials_with


def advance_experiment(locked: LockedExperiment, spec: ExperimentSpec, reached: Collection[int] | None = None) -> None:
    """Resumes paused trials, begins the experiment's end or completes it, as its trials' state demands.

    Callers run it after every change that may have this effect. `reached` are the milestones at which trials have just
    paused; None checks all milestones.
    """
    session, experiment = locked.session, locked.experiment
    if experiment.status not in LIVE_EXPERIMENT:
        return
    if may_run_trials(experiment):
        _resume_or_begin_ending(locked, spec, reached)
    if experiment.end_reason and not any_with(session, experiment.id, TrialStatus.QUEUED, TrialStatus.RUNNING):
        reason = EndReason(experiment.end_reason)
        end_paused(locked, reason)
        if has_ended_search(experiment) and begin_confirmation(locked, spec):
            return
        end_confirmation(locked)
        move_experiment(locked, STATUS_AFTER_END[reason], reason=reason)


def begin_ending(locked: LockedExperiment, reason: EndReason, detail: str | None = None) -> None:
    """Records why the experiment ends, so that it creates no new trials.

    Unless the reason is in ENDS_THAT_LET_TRIALS_RUN, queued and paused trials end now and running ones are asked to
    stop; confirmations only if the reason ends these, too. A reason that ends the search has no effect when it has
    ended and its winners are confirmed.
    """
    experiment = locked.experiment
    if not may_run_trials(experiment) or experiment.end_reason == reason:
        return
    if has_ended_search(experiment) and reason in CONFIRMED_ENDS:
        return
    experiment.end_reason = reason
    experiment.end_detail = detail
    data = {"reason": reason, "detail": detail}
    append_event(locked.session, experiment, "experiment.ending", data, at=locked.now)
    if reason not in ENDS_THAT_LET_TRIALS_RUN:
        _dismiss_trials(locked, reason)


def can_be_undone(experiment: ExperimentRow) -> bool:
    """Whether the experiment has ended in a way that a user can take back."""
    return experiment.ended_at is not None and experiment.end_reason in REVERSIBLE_ENDS


def how_to_continue(experiment: ExperimentRow) -> str:
    """For an experiment whose end a user can undo, the call that does it."""
    if experiment.end_reason == EndReason.USER:
        return f"resume it: POST /v1/experiments/{experiment.name}/resume"
    what = REVIVED_BY[EndReason(str(experiment.end_reason))]
    return f"change the limit or target that ended it ({what}): PATCH /v1/experiments/{experiment.name}"


def how_to_follow(experiment: ExperimentRow) -> str:
    """For an experiment whose end is final, how a new one begins with what it knows."""
    return f'a new one can learn from its trials: {{"search": {{"warm_start": ["{experiment.name}"]}}}}'


def check_not_ended(experiment: ExperimentRow, refusal: str) -> None:
    """Raises WrongState for an experiment that has ended or is ending; `refusal` completes "experiment x is … and"."""
    if experiment.status in LIVE_EXPERIMENT and may_run_trials(experiment):
        return
    state = experiment.status if experiment.ended_at else "ending"
    advice = f"; to continue it, {how_to_continue(experiment)}" if can_be_undone(experiment) else ""
    raise WrongState(
        f"experiment {experiment.name} is {state} ({experiment.end_reason}) and {refusal}{advice}",
        experiment_status=experiment.status,
        end_reason=experiment.end_reason,
        allowed=[],
    )


def _resume_or_begin_ending(locked: LockedExperiment, spec: ExperimentSpec, reached: Collection[int] | None) -> None:
    """A paused trial that can be resumed keeps an experiment from ending because all of its trials have run."""
    end = find_end(locked, spec)
    may_resume = end is None or end.reason is EndReason.MAX_TRIALS
    if (may_resume and release(Decider(locked, spec), reached)) or end is None:
        return
    begin_ending(locked, end.reason, end.detail)


def _dismiss_trials(locked: LockedExperiment, reason: EndReason) -> None:
    session, experiment = locked.session, locked.experiment
    why = experiment.end_detail or reason
    spares_confirmations = has_ended_search(experiment)
    queued, running = (
        [one for one in trials_with(session, experiment.id, status) if one.confirms is None or not spares_confirmations]
        for status in (TrialStatus.QUEUED, TrialStatus.RUNNING)
    )
    for trial in queued:
        trial.stop_cause = StopCause.EXPERIMENT_ENDED
        move_trial(locked, trial, TrialStatus.STOPPED, reason=f"the experiment ended: {why}")
    end_paused(locked, reason)
    for trial in running:
        request_stop(trial, StopCause.EXPERIMENT_ENDED, f"the experiment ends: {why}")
