"""`/v1/experiments/{x}/replay`: what another early-stopping rule would have done. Nothing is changed."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from search.early_stopping import EarlyStoppingSpec, Release, Verdict
from service.api.http.dependencies import Ctx
from service.api.http.problems import responses
from service.domain.grounds import Grounds
from service.operations.early_stopping.replay import Replayed, replay_experiment

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])


class ReplayRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    early_stopping: EarlyStoppingSpec


class ReplayedTrial(BaseModel):
    """`value` is that of the objective; with several objectives, that of the rule's metric."""

    id: str
    number: int
    value: float | None


class ReplayedStop(Grounds):
    """Where the rule would have stopped a trial, and why; `status` is the one that the trial really ended with."""

    id: str
    number: int
    status: str
    step: int
    steps_saved: int


class ReplayedRelease(Grounds):
    """Where the rule would have resumed a paused trial, and why: its `decision` is `promote`."""

    id: str
    number: int
    decision: str


class ReplayView(BaseModel):
    """What the rule would have done on the recorded curves. Steps are reported steps with the rule's metric.

    `cut_short_count` curves end early because the experiment's own rule stopped the trials; `unknown_count` of these
    trials would have continued, with values that are not known. `best_then` would have been the best trial of those not
    stopped. A rule that pauses trials would have done so `pause_count` times and resumed them as `released` says; those
    that would still be paused at the end are among the `stopped`.
    """

    metric: str
    direction: str
    trial_count: int
    step_count: int
    stopped_count: int
    steps_saved: int
    fraction_saved: float
    cut_short_count: int
    unknown_count: int
    best: ReplayedTrial | None
    best_lost: bool
    best_then: ReplayedTrial | None
    stopped: list[ReplayedStop]
    pause_count: int
    released: list[ReplayedRelease]


@router.post("/{experiment}/replay", responses=responses(404, 422))
def post_replay(experiment: str, body: ReplayRequest, context: Ctx) -> ReplayView:
    """Which trials the rule would have stopped, when and why, what that saves, and whether it loses the best trial."""
    replayed = replay_experiment(context, experiment, body.early_stopping)
    courses = replayed.courses
    steps, saved = sum(one.step_count for one in courses.values()), sum(one.steps_saved for one in courses.values())
    stops = [_stop(replayed, number, course.stop) for number, course in sorted(courses.items()) if course.stop]
    return ReplayView(
        metric=replayed.metric.name,
        direction=replayed.metric.direction,
        trial_count=len(replayed.trials),
        step_count=steps,
        stopped_count=len(stops),
        steps_saved=saved,
        fraction_saved=saved / steps if steps else 0,
        cut_short_count=len(replayed.cut_short),
        unknown_count=sum(courses[one].stop is None for one in replayed.cut_short if one in courses),
        best=_trial(replayed, replayed.best),
        best_lost=replayed.best != replayed.best_then,
        best_then=_trial(replayed, replayed.best_then),
        stopped=stops,
        pause_count=sum(len(course.pauses) for course in courses.values()),
        released=[_release(replayed, one) for _, course in sorted(courses.items()) for one in course.releases],
    )


def _stop(replayed: Replayed, number: int, verdict: Verdict) -> ReplayedStop:
    trial = replayed.trials[number]
    return ReplayedStop(
        id=trial.id,
        number=number,
        status=trial.status,
        step=verdict.step,
        steps_saved=replayed.courses[number].steps_saved,
        **verdict.grounds(),
    )


def _release(replayed: Replayed, release: Release) -> ReplayedRelease:
    return ReplayedRelease(
        id=replayed.trials[release.number].id,
        number=release.number,
        decision=release.decision,
        **release.grounds(),
    )


def _trial(replayed: Replayed, number: int | None) -> ReplayedTrial | None:
    if number is None:
        return None
    return ReplayedTrial(id=replayed.trials[number].id, number=number, value=replayed.values.get(number))
