"""How experiments end: a reason first, then the last running trials leave, then the status says so."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.failures import FAILURES_TO_GIVE_UP, CommonFailure, common_failure, never_started
from service.domain.improvement import describe_stagnation
from service.domain.limits import Limits, Progress, reason_to_end
from service.domain.statuses import LIVE_EXPERIMENT, NO_NEW_TRIALS, STATUS_AFTER_END, EndReason, StopCause, TrialStatus
from service.errors import WrongState
from service.operations.early_stopping.paused_trials import end_paused, release
from service.operations.transitions import move_experiment, move_trial, request_stop
from service.specification.models import ExperimentSpec
from service.store.attempts import first_failures
from service.store.early_stopping.improvement import best_end_before, newest_ends
from service.store.events import append_event
from service.store.experiments import may_run_trials
from service.store.tables import ExperimentRow
from service.store.trials import any_in_first_attempt, any_reported, any_with, counts_by_status, trials_with

_COUNTED = (TrialStatus.QUEUED, TrialStatus.RUNNING, TrialStatus.FAILED)
_WELL = (TrialStatus.COMPLETED, TrialStatus.PRUNED, TrialStatus.PAUSED)


def limits_of(spec: ExperimentSpec) -> Limits:
    return Limits(
        max_trials=spec.limits.max_trials,
        parallelism=spec.limits.parallelism,
        max_seconds=spec.limits.max_seconds,
        max_failed_trials=spec.failures.max_failed_trials,
    )


def progress_of(session: Session, experiment: ExperimentRow, now: datetime) -> Progress:
    """Counts no more trials than are live or have failed: those that ended well may be thousands."""
    counts = counts_by_status(session, experiment.id, _COUNTED)
    failed = counts[TrialStatus.FAILED]
    return Progress(
        created=experiment.trial_count,
        queued=counts[TrialStatus.QUEUED],
        running=counts[TrialStatus.RUNNING],
        failed=failed,
        any_started=failed > 0 and any_reported(session, experiment.id),
        any_well=failed > 0 and any_with(session, experiment.id, *_WELL),
        any_at_first=failed > 0 and any_in_first_attempt(session, experiment.id),
        alike=_alike(session, experiment) if failed else None,
        elapsed_seconds=(now - experiment.created_at).total_seconds(),
    )


def advance_experiment(
    session: Session,
    experiment: ExperimentRow,
    spec: ExperimentSpec,
    now: datetime,
    reached: Collection[int] | None = None,
) -> None:
    """Ends the experiment when its time has come; called after anything that may have brought it.

    `reached`: the milestones that somebody has begun to wait at; None: any.
    """
    if experiment.status not in LIVE_EXPERIMENT:
        return
    session.flush()
    if may_run_trials(experiment):
        _end_or_go_on(session, experiment, spec, now, reached)
    if experiment.end_reason and not any_with(session, experiment.id, TrialStatus.QUEUED, TrialStatus.RUNNING):
        reason = EndReason(experiment.end_reason)
        end_paused(session, experiment, reason, now)
        move_experiment(session, experiment, STATUS_AFTER_END[reason], reason=reason, at=now)


def _end_or_go_on(
    session: Session,
    experiment: ExperimentRow,
    spec: ExperimentSpec,
    now: datetime,
    reached: Collection[int] | None,
) -> None:
    """Trials that go on from their pause are what keeps an experiment from having run all of its trials."""
    ending = why_end(session, experiment, spec, now)
    is_through = ending is None or ending[0] is EndReason.MAX_TRIALS
    if (is_through and release(session, experiment, spec, now, reached)) or ending is None:
        return
    reason, detail = ending
    begin_ending(session, experiment, reason, now, detail)
    session.flush()


def why_end(
    session: Session, experiment: ExperimentRow, spec: ExperimentSpec, now: datetime
) -> tuple[EndReason, str | None] | None:
    """Why no further trial should start, and the sentence for it; None while there is more to do."""
    progress = progress_of(session, experiment, now)
    reason = reason_to_end(limits_of(spec), progress)
    match reason:
        case EndReason.MAX_TRIALS:
            return reason, f"all {progress.created} trials have ended (limits.max_trials is {spec.limits.max_trials})"
        case EndReason.MAX_SECONDS:
            limit = spec.limits.max_seconds or 0
            return reason, f"it began {progress.elapsed_seconds:.0f} s ago (limits.max_seconds is {limit:g})"
        case None:
            stagnant = _stagnation(session, experiment, spec)
            return (EndReason.NO_IMPROVEMENT, stagnant) if stagnant else None
        case _:
            return reason, _detail(session, experiment, reason)


def _stagnation(session: Session, experiment: ExperimentRow, spec: ExperimentSpec) -> str | None:
    limit, objective, constrained = spec.limits.no_improvement, spec.objective, bool(spec.constraints)
    if limit is None:
        return None
    newest = newest_ends(session, experiment.id, limit.trials, constrained=constrained)
    if newest is None:
        return None
    ends, since = newest
    before = best_end_before(session, experiment.id, since, objective.direction, constrained=constrained)
    return describe_stagnation(ends, before, objective.direction, objective.metric, limit.min_delta)


def check_not_ended(experiment: ExperimentRow, no_more: str) -> None:
    """Raises WrongState for an experiment that is over or ending; `no_more` says what it does no more."""
    if experiment.status in LIVE_EXPERIMENT and may_run_trials(experiment):
        return
    state = experiment.status if experiment.ended_at else "ending"
    raise WrongState(
        f"experiment {experiment.name} is {state} ({experiment.end_reason}) and {no_more}",
        experiment_status=experiment.status,
        end_reason=experiment.end_reason,
        allowed=[],
    )


def begin_ending(
    session: Session, experiment: ExperimentRow, reason: EndReason, now: datetime, detail: str | None = None
) -> None:
    """No new trials are made. Unless the reason lets the others go on, they are dropped or told to leave."""
    if not may_run_trials(experiment) or experiment.end_reason == reason:
        return
    experiment.end_reason = reason
    experiment.end_detail = detail
    append_event(session, experiment, "experiment.ending", {"reason": reason, "detail": experiment.end_detail}, at=now)
    if reason not in NO_NEW_TRIALS:
        _dismiss_trials(session, experiment, reason, now)


def _dismiss_trials(session: Session, experiment: ExperimentRow, reason: EndReason, now: datetime) -> None:
    cause = StopCause.USER if reason is EndReason.USER else StopCause.EXPERIMENT_ENDED
    for trial in trials_with(session, experiment.id, TrialStatus.QUEUED):
        move_trial(session, experiment, trial, TrialStatus.STOPPED, reason=f"the experiment ended: {reason}", at=now)
    end_paused(session, experiment, reason, now)
    for trial in trials_with(session, experiment.id, TrialStatus.RUNNING):
        request_stop(trial, cause, f"the experiment ends: {reason}")


def _detail(session: Session, experiment: ExperimentRow, reason: EndReason) -> str | None:
    if reason not in (EndReason.CANNOT_START, EndReason.TOO_MANY_FAILURES):
        return None
    alike = _alike(session, experiment)
    if reason is EndReason.CANNOT_START:
        return f"{_first(alike)} could not start: {alike.first.message}" if alike else None
    if alike is not None and alike.is_enough and never_started(alike.first):
        return (
            f"no worker of {_first(alike)} ever ran, however often it was tried: {alike.first.message}. If their nodes "
            "are well, look at `trainer.env` and at how much memory a worker may have"
        )
    failed = trials_with(session, experiment.id, TrialStatus.FAILED)
    if alike is not None and 1 < alike.count == len(failed):
        return f"{_first(alike)} failed alike: {alike.first.message}"
    trials = "1 trial" if len(failed) == 1 else f"{len(failed)} trials"
    return f"{trials} failed; the last: {failed[-1].reason}" if failed else None


def _first(alike: CommonFailure) -> str:
    return f"the first {alike.count} trials" if alike.count > 1 else "the only trial"


def _alike(session: Session, experiment: ExperimentRow) -> CommonFailure | None:
    return common_failure(first_failures(session, experiment.id, max(FAILURES_TO_GIVE_UP.values())))
