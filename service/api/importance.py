"""`/v1/experiments/{x}/importance`: how much each parameter matters."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from search.analysis.importance import Evaluator
from service.api.http.dependencies import Ctx
from service.api.http.problems import responses
from service.runtime.importance_cache import ExperimentImportance

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])


class ImportanceView(BaseModel):
    """`parameters` adds up to 1, the most important first. It is empty where `reason` says why.

    `left_out` has the parameters that the evaluator cannot judge, with the reason. Of `trial_count` completed trials
    `used_count` are the base of it: of many it takes a sample, always the same one of the same trials.
    """

    metric: str
    evaluator: Evaluator
    parameters: dict[str, float]
    left_out: dict[str, str]
    trial_count: int
    used_count: int
    reason: str | None

    @classmethod
    def of(cls, judged: ExperimentImportance) -> "ImportanceView":
        found = judged.importance
        return cls(
            metric=judged.metric,
            evaluator=judged.evaluator,
            parameters=found.parameters,
            left_out=found.left_out,
            trial_count=judged.trial_count,
            used_count=found.used_count,
            reason=found.reason,
        )


@router.get("/{experiment}/importance", responses=responses(404, 422))
def get_importance(
    experiment: str,
    context: Ctx,
    metric: Annotated[str | None, Query(description="an objective; the first by default")] = None,
    evaluator: Annotated[
        Evaluator,
        Query(description="`ped_anova`: what it takes to be among the best; `fanova`: what changes the value"),
    ] = "ped_anova",
) -> ImportanceView:
    """From the trials that have completed."""
    return ImportanceView.of(context.importance.importance(context.database, experiment, metric, evaluator))
