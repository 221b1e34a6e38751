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
    """`parameters` adds up to 1, the most important first. It is empty when `reason` says why.

    `left_out` has the parameters that the evaluator cannot judge, with the reason. `used_count` of the `trial_count`
    completed trials were evaluated: of many trials, the evaluator takes a sample, which depends on the trials alone.
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
    metric: Annotated[str | None, Query(description="an objective's metric; default: the first objective")] = None,
    evaluator: Annotated[
        Evaluator,
        Query(description="`ped_anova`: importance for being among the best; `fanova`: share of the variance"),
    ] = "ped_anova",
) -> ImportanceView:
    """The importance of each parameter, from the completed trials."""
    return ImportanceView.of(context.importance.importance(context.database, experiment, metric, evaluator))
