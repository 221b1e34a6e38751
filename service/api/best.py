"""`/v1/experiments/{x}/best`: the best trial, or the Pareto front."""

from fastapi import APIRouter
from sqlalchemy.orm import Session

from search.problem import sign_of
from service.api.http.cursors import TRIAL_PLACE, from_cursor, to_cursor
from service.api.http.dependencies import Ctx, Cursor, Limit
from service.api.http.problems import responses
from service.api.views import FrontView, TrialDetail, trial_views
from service.errors import NotFound
from service.operations.experiments.best import best_trial, front_of, nearest_to_feasible, trials_by_number
from service.runtime.objective_values import broken_constraints
from service.runtime.spec_cache import spec_of
from service.store.lookup import experiment_named
from service.store.tables import ExperimentRow
from service.store.trials import counts_by_status

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])


@router.get("/{experiment}/best", responses=responses(404, 422))
def get_best(experiment: str, context: Ctx, cursor: Cursor = None, limit: Limit = 100) -> TrialDetail | FrontView:
    """The best trial that ran to its end and keeps the constraints; with several objectives, all on the Pareto front.

    The front is in the order of the first objective, best first.
    """
    after = from_cursor(TRIAL_PLACE, cursor)
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        if len(row.spec["objectives"]) > 1:
            return _front(session, row, after, limit)
        best = best_trial(session, row)
        if best is None:
            raise _none_yet(session, row)
        return TrialDetail.read(session, best)


def _front(
    session: Session, experiment: ExperimentRow, after: tuple[float | None, int] | None, limit: int
) -> FrontView:
    front = front_of(session, experiment)
    if not front:
        raise _none_yet(session, experiment)
    left = [place for place in front if after is None or _comes_after(experiment, place, after)]
    page = left[:limit]
    return FrontView(
        objectives=experiment.spec["objectives"],
        count=len(front),
        items=trial_views(session, trials_by_number(session, experiment, [number for _, number in page])),
        next_cursor=to_cursor(TRIAL_PLACE, page[-1]) if len(left) > limit else None,
    )


def _comes_after(experiment: ExperimentRow, place: tuple[float, int], last: tuple[float | None, int]) -> bool:
    """By value, best first, then by number; the last one seen may have left the front since."""
    sign = sign_of(experiment.spec["objectives"][0]["direction"])
    return last[0] is not None and (sign * place[0], place[1]) > (sign * last[0], last[1])


def _none_yet(session: Session, experiment: ExperimentRow) -> NotFound:
    counts, nearest = counts_by_status(session, experiment.id), nearest_to_feasible(session, experiment)
    if nearest is None:
        which = "completed, with all that its constraints need," if experiment.spec.get("constraints") else "completed"
        return NotFound(f"no trial of experiment {experiment.name} has {which} yet", counts=counts)
    why = broken_constraints(spec_of(experiment), nearest)
    return NotFound(
        f"no trial of experiment {experiment.name} keeps its constraints yet; nearest is trial {nearest.number}: {why}",
        counts=counts,
        nearest=trial_views(session, [nearest])[0].model_dump(mode="json"),
    )
