"""`/v1/experiments/{x}/importance`: how much each parameter matters."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool

from search.analysis.importance import Evaluator, importance_of
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx, ExperimentName
from service.api.http.error_responses import error_responses
from service.api.http.routes import Route
from service.api.views.rows import View
from service.errors import NotFound, TooMuchWork
from service.runtime.caches.importance_cache import ExperimentImportance, ImportanceQuestion
from service.runtime.observations.curve_scores import Measure

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=Route)


class ImportanceView(View):
    """How much each parameter matters. Of many trials a sample is evaluated, which depends on the trials alone."""

    metric: str
    """the objective that was judged"""
    evaluator: Evaluator
    """how it was judged"""
    measure: Measure
    """what trials were judged by: their values, or the curve score if early stopping has ended or paused some"""
    parameters: dict[str, float]
    """the share of each parameter, the most important first; together 1"""
    left_out: dict[str, str]
    """parameters that cannot be judged, with the reason"""
    trial_count: int
    """the number of trials that could be judged: completed ones; by the curve score all that have ended or
    paused, except for those that failed otherwise than by diverging"""
    used_count: int
    """how many of them were evaluated"""
    reason: str | None
    """why `parameters` is empty"""

    @classmethod
    def of(cls, judged: ExperimentImportance) -> "ImportanceView":
        found = judged.importance
        return cls(
            metric=judged.metric,
            evaluator=judged.evaluator,
            measure=judged.measure,
            parameters=found.parameters,
            left_out=found.left_out,
            trial_count=judged.trial_count,
            used_count=found.used_count,
            reason=found.reason,
        )


@router.get("/{experiment}/importance", responses=error_responses(NotFound, TooMuchWork))
async def get_importance(
    experiment: ExperimentName,
    context: Ctx,
    request: Request,
    metric: Annotated[str | None, Query(description="an objective's metric; default: the first objective")] = None,
    evaluator: Annotated[
        Evaluator,
        Query(description="`ped_anova`: importance for being among the best; `fanova`: share of the variance"),
    ] = "ped_anova",
) -> ImportanceView:
    """The importance of each parameter, from the completed trials or, with early stopping, from the scores of all."""
    found = await run_in_threadpool(context.importance.find, experiment, metric, evaluator)
    if isinstance(found, ImportanceQuestion):
        asked = (found.space, found.direction, found.trials, found.evaluator)
        found = context.importance.store(found, await computed(request, context.compute, importance_of, *asked))
    return ImportanceView.of(found)
