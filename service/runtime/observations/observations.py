"""Translates an experiment and its trials into the terms of the search."""

from collections.abc import Mapping
from dataclasses import replace

from search.constraints import violations
from search.early_stopping.plugin_rules import has_trait
from search.problem import Observation, Status, sign_of
from service.domain.statuses import TrialStatus
from service.runtime.observations.targets_and_constraints import known_values
from service.specification.models import ExperimentSpec
from service.store.trials.ended_trials import ran_to_completion
from service.store.trials.measured_trial import MeasuredTrial
from trainer.wire import FailureKind

_STATUSES: dict[TrialStatus, Status] = {
    TrialStatus.QUEUED: "running",  # a sampler does not distinguish the two
    TrialStatus.RUNNING: "running",
    TrialStatus.COMPLETED: "completed",
    TrialStatus.PRUNED: "pruned",
    TrialStatus.FAILED: "failed",
    TrialStatus.STOPPED: "stopped",
}


_OF_PARAMS = (FailureKind.DIVERGED, FailureKind.OUT_OF_MEMORY, FailureKind.USER_ERROR)
"""Failures that may come again near the same params. The search learns from them as from a loss that is NaN.

Of an earlier experiment only those that diverged count: what its code did wrong may have been corrected since.
"""


def seed_of(spec: ExperimentSpec, experiment_id: str) -> int:
    """The seed of the spec, or one that is derived from the experiment's id."""
    return spec.search.seed if spec.search.seed is not None else int(experiment_id.removeprefix("x-"), 16) % 2**31


def observation_of(
    spec: ExperimentSpec, trial: MeasuredTrial, *, ran_under: ExperimentSpec | None = None
) -> Observation:
    """Return a trial, without rungs, by the objectives of `spec`.

    `ran_under` is the spec of the trial of an earlier experiment.
    """
    own = ran_under or spec
    known = known_values(own, trial)
    values = tuple(known[one.metric] for one in spec.objectives if one.metric in known)
    is_whole = len(values) == len(spec.objectives)
    return Observation(
        number=trial.number,
        params=trial.params,
        status=_status(own, trial, is_whole=is_whole, is_earlier=ran_under is not None),
        values=values if is_whole else None,
        last_step=trial.last_step,
        last_value=known.get(spec.objective.metric),
        constraints=violations(spec.constraints, known) if spec.constraints else None,
    )


def with_rungs(spec: ExperimentSpec, one: Observation, milestones: Mapping[int, Mapping[int, float]]) -> Observation:
    """The observation with its losses by step. `milestones`: by trial number, values of the compared metric by step."""
    sign = sign_of(spec.compared_metric.direction)
    reached = milestones.get(one.number, {})
    return replace(one, rungs=tuple((step, sign * value) for step, value in sorted(reached.items())))


def _status(spec: ExperimentSpec, trial: MeasuredTrial, *, is_whole: bool, is_earlier: bool) -> Status:
    if trial.failure_kind == FailureKind.DIVERGED or (trial.failure_kind in _OF_PARAMS and not is_earlier):
        return "diverged"
    if trial.status == TrialStatus.COMPLETED and not is_whole:
        return "failed"  # there is no value to learn from
    if is_whole and ran_to_completion(trial):
        return "completed"
    if trial.status == TrialStatus.PAUSED:
        # With promotion, a paused trial is a worse one, stopped at its rung. With PBT it is unfinished.
        return "pruned" if has_trait(spec.early_stopping, "paused_trials_lose") else "running"
    return _STATUSES[TrialStatus(trial.status)]
