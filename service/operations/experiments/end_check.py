"""Whether an experiment has reached its end, and why, with a sentence for the user."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_

from search.numbers_in_messages import counted
from service.domain.end_conditions import Limits, Progress, reason_to_end
from service.domain.end_reasons import EndReason
from service.domain.no_improvement import describe_stagnation
from service.domain.repeated_failure import FAILURES_TO_GIVE_UP, RepeatedFailure, repeated_failure
from service.domain.retry_policy import never_started
from service.domain.statuses import TrialStatus
from service.operations.experiments.gpu_hours import gpu_hours
from service.operations.locked_experiment import LockedExperiment
from service.specification.models import ExperimentSpec
from service.store.attempts import first_failures, running_attempts
from service.store.tables import TrialRow
from service.store.trials.confirmations import confirmations_of
from service.store.trials.ended_trials import best_end_before, have_run_to_completion, newest_ends
from service.store.trials.trials import (
    any_in_first_attempt,
    any_reported,
    any_running_with_reports,
    any_that,
    counts_by_status,
    trials_with,
)
from trainer.wire import Failure

_COUNTED = (TrialStatus.QUEUED, TrialStatus.RUNNING, TrialStatus.FAILED)


@dataclass(frozen=True)
class ReachedEnd:
    """`detail` is a sentence for the user, where there is more to say than the reason."""

    reason: EndReason
    detail: str | None


def find_end(locked: LockedExperiment, spec: ExperimentSpec) -> ReachedEnd | None:
    """Why no further trial should start; None while the experiment has more to do."""
    progress, most = _progress(locked, spec), spec.max_search_trials
    limits = Limits(
        max_trials=None if most is None else most - progress.confirmation_count,
        max_seconds=spec.limits.max_seconds,
        max_gpu_hours=spec.limits.max_gpu_hours,
        max_failed_trials=spec.failures.max_failed_trials,
    )
    reason = reason_to_end(limits, progress)
    match reason:
        case EndReason.MAX_TRIALS:
            return ReachedEnd(reason, _ended_trials(spec, progress.created))
        case EndReason.MAX_SECONDS:
            limit = spec.limits.max_seconds or 0
            ran = f"the experiment had run for {progress.elapsed_seconds:.0f} s"
            return ReachedEnd(reason, f"{ran} (limits.max_seconds is {limit:g})")
        case EndReason.MAX_GPU_HOURS:
            limit = spec.limits.max_gpu_hours or 0
            held = f"the trials had held GPUs for {progress.gpu_hours:.4g} hours"
            return ReachedEnd(reason, f"{held} (limits.max_gpu_hours is {limit:g})")
        case None:
            stagnation = _stagnation(locked, spec)
            return ReachedEnd(EndReason.NO_IMPROVEMENT, stagnation) if stagnation else None
        case _:
            return ReachedEnd(reason, _failure_detail(locked, spec, reason, progress))


def _ended_trials(spec: ExperimentSpec, count: int) -> str:
    limit = f"limits.max_trials is {spec.limits.max_trials}"
    trials, have = ("the only trial", "has") if count == 1 else (f"all {count} trials", "have")
    if spec.confirm is None:
        return f"{trials} {have} ended ({limit})"
    kept = f"of which confirm keeps {spec.confirm.trial_count} for its winners"
    return f"{trials} of the search {have} ended ({limit}, {kept})"


def _progress(locked: LockedExperiment, spec: ExperimentSpec) -> Progress:
    """The progress of the search, without confirmations. It counts only live and failed trials: others are many."""
    session, experiment = locked.session, locked.experiment
    confirmations = confirmations_of(session, [experiment.id]) if experiment.spec.get("confirm") else []
    counts = counts_by_status(session, experiment.id, _COUNTED)
    for one in confirmations:
        if one.status in counts:
            counts[one.status] -= 1
    failed = counts[TrialStatus.FAILED]
    failures = _first_failures(locked) if failed else {}
    return Progress(
        created=experiment.trial_count - len(confirmations),
        confirmation_count=len(confirmations),
        queued=counts[TrialStatus.QUEUED],
        running=counts[TrialStatus.RUNNING],
        failed=failed,
        any_started=failed > 0 and any_reported(session, experiment.id),
        any_succeeded=failed > 0 and (bool(confirmations) or any_that(session, experiment.id, _have_succeeded())),
        any_outlasts=bool(failures) and any_running_with_reports(session, experiment.id, max(failures)),
        any_in_first_attempt=failed > 0 and any_in_first_attempt(session, experiment.id),
        repeated_failure=repeated_failure([*failures.values()]),
        elapsed_seconds=locked.seconds_since(experiment.created_at),
        gpu_hours=_gpu_hours(locked, spec),
        is_space_exhausted=experiment.end_reason == EndReason.SPACE_EXHAUSTED,
    )


def _gpu_hours(locked: LockedExperiment, spec: ExperimentSpec) -> float:
    if spec.limits.max_gpu_hours is None:
        return 0.0
    running = running_attempts(locked.session, [locked.experiment.id])
    return gpu_hours(locked.experiment, spec, running, locked.seconds_since)


def _have_succeeded() -> ColumnElement[bool]:
    return or_(have_run_to_completion(), TrialRow.status.in_((TrialStatus.PRUNED, TrialStatus.PAUSED)))


def _first_failures(locked: LockedExperiment) -> dict[int, Failure]:
    """The first failures of the kinds that do not depend on a trial's params alone, by trial number."""
    most = max(FAILURES_TO_GIVE_UP.values())
    return first_failures(locked.session, locked.experiment.id, FAILURES_TO_GIVE_UP, most)


def _stagnation(locked: LockedExperiment, spec: ExperimentSpec) -> str | None:
    session, experiment = locked.session, locked.experiment
    limit, objective, constrained = spec.limits.no_improvement, spec.objective, bool(spec.constraints)
    if limit is None:
        return None
    # Trials that another end has stopped go on if the experiment does, and have not been trained to their ends.
    counts_stopped = experiment.end_reason == EndReason.NO_IMPROVEMENT
    newest = newest_ends(session, experiment.id, limit.trials, constrained=constrained, with_stopped=counts_stopped)
    if newest is None:
        return None
    ends, since = newest
    before = best_end_before(session, experiment.id, since, objective.direction, constrained=constrained)
    return describe_stagnation(ends, before, objective.direction, objective.metric, limit.min_delta)


def _failure_detail(
    locked: LockedExperiment, spec: ExperimentSpec, reason: EndReason, progress: Progress
) -> str | None:
    common, limit = progress.repeated_failure, _limit_of_failures(spec, progress)
    if reason is EndReason.CANNOT_START:
        return f"{_trials(common)} could not start: {common.first.message}" if common else None
    if common is not None and common.is_conclusive and never_started(common.first):
        return (
            f"no worker of {_trials(common)} ever ran, in any attempt: {common.first.message}. If the nodes are "
            "healthy, check `trainer.env` and how much memory a worker may use"
        )
    failed = trials_with(locked.session, locked.experiment.id, TrialStatus.FAILED)
    if common is not None and 1 < common.count == len(failed):
        return f"{_trials(common)} failed in the same way{limit}: {common.first.message}"
    return f"{counted(len(failed), 'trial')} failed{limit}; the last: {failed[-1].reason}" if failed else None


def _limit_of_failures(spec: ExperimentSpec, progress: Progress) -> str:
    """The limit that the failures have reached, in brackets; "" if their messages alone are the reason."""
    most = spec.failures.max_failed_trials
    if most is not None and progress.failed > most:
        return f" (failures.max_failed_trials is {most})"
    if progress.failed == progress.created and not spec.has_room(progress.created):
        return f" (limits.max_trials is {spec.limits.max_trials})"
    return " (every configuration has been tried)" if progress.is_space_exhausted else ""


def _trials(failure: RepeatedFailure) -> str:
    return f"the first {failure.count} trials" if failure.count > 1 else "the only trial"
