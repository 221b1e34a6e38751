"""Which trials may be the best: by status, and by the constraints that they keep. Said of a row, and in SQL."""

from sqlalchemy import ColumnElement

from service.domain.statuses import ELIGIBLE_FOR_BEST
from service.store.tables import TrialRow
from service.store.trials.trials import is_of_search


def is_eligible_for_best(status: str, violation: float | None, *, constrained: bool) -> bool:
    """Whether a trial of the search with a value may be the best. `constrained`: the experiment has constraints."""
    return status in ELIGIBLE_FOR_BEST and (not constrained or violation == 0)


def eligible_for_best(*, constrained: bool, by_status: ColumnElement[bool] | None = None) -> list[ColumnElement[bool]]:
    """The conditions for trials of the search that have a value and of which `is_eligible_for_best` is true.

    `by_status`: the condition on the status in another form, for the sake of an index.
    """
    conditions = [
        TrialRow.status.in_(ELIGIBLE_FOR_BEST) if by_status is None else by_status,
        TrialRow.value.is_not(None),
        is_of_search(),
    ]
    return [*conditions, TrialRow.violation == 0] if constrained else conditions
