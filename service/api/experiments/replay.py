"""`/v1/experiments/{x}/replay`: what another early-stopping rule would have done. Nothing is changed."""

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict

from search.early_stopping import EarlyStoppingSpec, Release, Verdict
from search.json_types import JsonModel
from service.api.http.bodies.json_body import JsonBody
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx, ExperimentName
from service.api.http.error_responses import error_responses
from service.api.http.routes import Route
from service.api.views.rows import View
from service.domain.decision_grounds import GroundsModel
from service.errors import NotFound, TooMuchWork
from service.operations.early_stopping.replay import Replayed, replay_experiment
from service.store.sql.database import Database

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=Route)


class ReplayRequest(JsonModel):
    """The rule to try."""

    model_config = ConfigDict(extra="forbid")

    early_stopping: EarlyStoppingSpec
    """the rule to try, as in a spec; `auto` and `pbt` cannot be replayed"""


class ReplayedTrial(View):
    """A trial and its value."""

    id: str
    """the trial's id"""
    number: int
    """the trial's number"""
    value: float | None
    """its objective; with several objectives, the rule's metric"""


class ReplayedStop(GroundsModel):
    """Where the rule would have stopped a trial, and why."""

    id: str
    """the trial's id"""
    number: int
    """the trial's number"""
    status: str
    """the status that it really ended with"""
    step: int
    """where the rule would have stopped it"""
    steps_saved: int
    """the steps that it trained after that"""


class ReplayedRelease(GroundsModel):
    """Where the rule would have resumed a paused trial, and why."""

    id: str
    """the trial's id"""
    number: int
    """the trial's number"""
    decision: str
    """`promote`"""


class ReplayView(View):
    """What the rule would have done on the recorded curves. Steps are reported steps with the rule's metric.

    Trials that would still be paused at the end are among the `stopped`.
    """

    metric: str
    """what trials are compared by"""
    direction: str
    """`minimize` or `maximize`"""
    trial_count: int
    """the number of trials of the search"""
    step_count: int
    """the number of reported steps"""
    stopped_count: int
    """how many trials the rule would have stopped"""
    steps_saved: int
    """how many steps that would have saved"""
    fraction_saved: float
    """`steps_saved` as a share of `step_count`"""
    cut_short_count: int
    """curves that end early because the experiment's own rule stopped the trial"""
    unknown_count: int
    """how many of these would have continued, with values that are not known"""
    best: ReplayedTrial | None
    """the best trial"""
    best_lost: bool
    """whether the rule would have stopped the best trial"""
    best_then: ReplayedTrial | None
    """the best of the trials that would not have been stopped"""
    stopped: list[ReplayedStop]
    """the trials that it would have stopped, and why"""
    pause_count: int
    """how often it would have paused a trial"""
    released: list[ReplayedRelease]
    """where it would have resumed paused trials, and why"""


_BODY = JsonBody(ReplayRequest)


@router.post(
    "/{experiment}/replay",
    response_model=ReplayView,
    responses=error_responses(NotFound, TooMuchWork),
    openapi_extra=_BODY.openapi,
)
async def replay_early_stopping(
    experiment: ExperimentName, body: Annotated[ReplayRequest, Depends(_BODY)], context: Ctx, request: Request
) -> Response:
    """Which trials the rule would have stopped, when and why, what that saves, and whether it loses the best trial."""
    url = context.settings.database_url
    content = await computed(request, context.compute, _replay, url, experiment, body.early_stopping)
    return Response(content, media_type="application/json")


def _replay(database_url: str, experiment: str, rule: EarlyStoppingSpec) -> str:
    return _view(replay_experiment(_database(database_url), experiment, rule)).model_dump_json()


@cache
def _database(url: str) -> Database:
    """The connections of a worker process."""
    return Database(url)


def _view(replayed: Replayed) -> ReplayView:
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
