"""`/v1/experiments/{x}/best`: the best trial, or the Pareto front."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from search.problem import sign_of
from service.api.http.dependencies import Ctx, ExperimentName
from service.api.http.error_responses import error_responses
from service.api.http.pages import TRIAL_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.views.confirmation import confirmation_view
from service.api.views.trials import TrialDetail, TrialView, trial_detail, trial_views
from service.errors import NotFound
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.targets_and_constraints import broken_constraints
from service.store.lookup import experiment_named
from service.store.tables import ExperimentRow
from service.store.trials.best_trials import best_trial, front_of, nearest_to_feasible, trials_by_number
from service.store.trials.trials import counts_by_status

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=Route)


class FrontView(Page[TrialView]):
    """A page of a Pareto front: no other trial beats one of its trials in every objective."""

    objectives: list[dict[str, Any]]
    """the objectives, as in the spec"""
    count: int
    """the number of trials on the whole front"""


@router.get("/{experiment}/best", responses=error_responses(NotFound))
def get_best(
    experiment: ExperimentName, context: Ctx, cursor: Cursor = None, limit: Limit = 100
) -> TrialDetail | FrontView:
    """The best trial, or with several objectives the Pareto front in the order of the first objective, best first.

    Completed and stopped trials count that satisfy the constraints; a stopped one has been ended by a user or a limit,
    and counts with its newest values. With `confirm` in the spec, the answer
    has the confirmations, too, and the best trial is the first in their ranking as soon as all of them have ended.
    """
    after = from_cursor(TRIAL_KEY, cursor)
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        if len(row.spec["objectives"]) > 1:
            return _front(session, row, after, limit)
        best = best_trial(session, row)
        if best is None:
            raise _no_best(session, row)
        confirmation = confirmation_view(session, row) if row.spec.get("confirm") else None
        return trial_detail(session, best, confirmation)


def _front(
    session: Session, experiment: ExperimentRow, after: tuple[float | None, int] | None, limit: int
) -> FrontView:
    front = front_of(session, experiment)
    if not front:
        raise _no_best(session, experiment)
    left = [key for key in front if after is None or _comes_after(experiment, key, after)]
    numbers = [number for _, number in left[:limit]]
    return FrontView(
        objectives=experiment.spec["objectives"],
        count=len(front),
        items=trial_views(session, trials_by_number(session, experiment, numbers)),
        next_cursor=next_cursor(left, limit, lambda key: to_cursor(TRIAL_KEY, key)),
    )


def _comes_after(experiment: ExperimentRow, key: tuple[float, int], last: tuple[float | None, int]) -> bool:
    """Whether the key comes after the last one seen: worse, or as good with a higher number.

    Keys are compared, because the last trial seen may have left the front.
    """
    sign = sign_of(experiment.spec["objectives"][0]["direction"])
    return last[0] is not None and (sign * key[0], key[1]) > (sign * last[0], last[1])


def _no_best(session: Session, experiment: ExperimentRow) -> NotFound:
    yet = "" if experiment.ended_at else " yet"
    counts, nearest = counts_by_status(session, experiment.id), nearest_to_feasible(session, experiment)
    if nearest is None:
        with_all = ["constraints' metrics"] if experiment.spec.get("constraints") else []
        with_all += ["objectives"] if len(experiment.spec["objectives"]) > 1 else []
        what = f"completed with all of its {' and '.join(with_all)}" if with_all else "completed"
        return NotFound(f"no trial of experiment {experiment.name} has {what}{yet}", counts=counts)
    why = broken_constraints(spec_of(experiment), nearest)
    return NotFound(
        f"no trial of experiment {experiment.name} satisfies its constraints{yet}; nearest is trial "
        f"{nearest.number}: {why}",
        counts=counts,
        nearest=trial_views(session, [nearest])[0].model_dump(mode="json"),
    )
