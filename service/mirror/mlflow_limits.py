"""MLflow's limits for lengths and numbers. What these functions return, MLflow never rejects."""

import json
import math
from collections.abc import Mapping
from typing import Any

from search.reported_numbers import finite_number
from service.mirror.mlflow_names import names

RUN_NAME_LENGTH = 250
"""MLflow does not check it: its database refuses a longer one, if that is PostgreSQL or MySQL."""
EXPERIMENT_NAME_LENGTH = 500
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
METRICS_PER_CALL, PARAMS_PER_CALL, TAGS_PER_CALL = 800, 50, 50
"""In one call MLflow accepts 1,000 metrics, 100 parameters, 100 tags, 1,000 of all together and a million bytes."""
FEWEST_METRICS_PER_CALL = 50
"""After calls that took too long. With fewer, a report of thousands of metrics would take too many calls."""
WRITES_BEFORE_LARGER_CALLS = 10
"""A larger call may take too long again, which costs as much as dozens that do not."""
_NUMBER_WORDS = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


def number(value: Any) -> float | None:
    """Return `value` as a metric; None for what is not a number.

    Numbers may be texts, as for the search. NaN and infinities always are, since JSON has none.
    """
    if isinstance(value, str):
        return _NUMBER_WORDS.get(value.lower(), finite_number(value))
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def text(value: Any, length: int = TAG_LENGTH) -> str:
    """Return `value` as text, structures as JSON. A text longer than `length` characters is cut and ends with `…`."""
    whole = json.dumps(value) if isinstance(value, Mapping | list | tuple) else str(value)
    return whole if len(whole) <= length else whole[: length - 1] + "…"


def texts(
    values: Mapping[str, Any], length: int = TAG_LENGTH, accepted: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return `values` as tags or parameters, without those that are None; `accepted` has their names, if given."""
    given = {key: value for key, value in values.items() if value is not None}
    accepted = names(given) if accepted is None else accepted
    return {accepted[key]: text(value, length) for key, value in given.items()}
