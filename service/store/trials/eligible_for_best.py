"""Which trials may be the best: those in a CONTENDERS status that keep the constraints. Said of a row, and in SQL."""

from sqlalchemy import ColumnElement

from service.domain.statuses import CONTENDERS
from service.store.tables import TrialRow
from service.store.trials.trials import is_of_search


def may_be_best(status: str, violation: float | None, *, constrained: bool) -> bool:
    """Whether a trial of the search with a value may be the best. `constrained`: the experiment has constraints."""
    return status in CONTENDERS and (not constrained or violation == 0)


def that_may_be_best(*, constrained: bool, by_status: ColumnElement[bool] | None = None) -> list[ColumnElement[bool]]:
    """The conditions for trials of the search that have a value and of which `may_be_best` is true.

    `by_status`: the condition on the status in another form, for the sake of an index.
    """
    conditions = [
        TrialRow.status.in_(CONTENDERS) if by_status is None else by_status,
        TrialRow.value.is_not(None),
        is_of_search(),
    ]
    return [*conditions, TrialRow.violation == 0] if constrained else conditions
