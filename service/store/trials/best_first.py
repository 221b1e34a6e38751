"""The order of trials by value, best first, and of equal ones by number."""

from typing import Any

from sqlalchemy import UnaryExpression

from search.problem import Direction
from service.store.tables import TrialRow


def best_first(direction: Direction) -> tuple[UnaryExpression[Any], UnaryExpression[int]]:
    """The order by the first objective, then by trial number."""
    by_value = TrialRow.value.asc() if direction == "minimize" else TrialRow.value.desc()
    return by_value, TrialRow.number.asc()
