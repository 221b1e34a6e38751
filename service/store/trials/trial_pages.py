"""Pages of an experiment's trials, in the order in which the API lists them."""

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from search.problem import Direction
from service.store.tables import TrialRow
from service.store.trials.best_first import best_first


def page_of_trials(
    session: Session,
    experiment_id: str,
    *,
    status: str | None,
    number: int | None,
    by_value: Direction | None,
    after: tuple[float | None, int] | None,
    limit: int,
) -> list[TrialRow]:
    """By number, or best value first (trials without a value last). `after`: value and number of the last one seen."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id)
    if status:
        query = query.where(TrialRow.status == status)
    if number is not None:
        query = query.where(TrialRow.number == number)
    value, seen = after or (None, None)
    further = TrialRow.number > (-1 if seen is None else seen)
    if by_value is None:
        return _first(session, query.where(further).order_by(TrialRow.number), limit)
    found: list[TrialRow] = []
    if seen is None or value is not None:
        valued = query.where(TrialRow.value.is_not(None))
        if value is not None:
            no_better = TrialRow.value >= value if by_value == "minimize" else TrialRow.value <= value
            valued = valued.where(no_better, (TrialRow.value != value) | further)
        found = _first(session, valued.order_by(*best_first(by_value)), limit)
        further = TrialRow.number > -1
    # A separate query, because no index has the order of trials with and without a value.
    rest = query.where(TrialRow.value.is_(None), further).order_by(TrialRow.number)
    return [*found, *(_first(session, rest, limit - len(found)) if len(found) < limit else [])]


def _first(session: Session, query: Select[TrialRow], limit: int) -> list[TrialRow]:
    return list(session.scalars(query.limit(limit)))
