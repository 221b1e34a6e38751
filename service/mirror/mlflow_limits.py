"""MLflow's limits for names, lengths and numbers. What these functions return, MLflow never rejects."""

import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from search.reported_numbers import finite_number

NAME_LENGTH = 250
HASH_LENGTH = 8
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
_FORBIDDEN = re.compile(r"[^\w\-. :/]")
_NUMBER_WORDS = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


def name(text: str) -> str:
    """Return `text` as a name of a metric, parameter or tag. MLflow rejects brackets, absolute paths and `..`."""
    legal = _FORBIDDEN.sub("_", text)[:NAME_LENGTH]
    is_unsafe_path = legal.startswith(("/", "..")) or posixpath.normpath(legal) != legal
    accepted = legal.replace("/", "_").replace("..", "_") if is_unsafe_path else legal
    return "_" if accepted in {"", "."} else accepted


def names(originals: Collection[str], known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the name in MLflow of each of the names, no two the same. Those that are `known` have theirs already.

    If MLflow would take some for one, those that it rejects get a hash of the original. All others are as `name` says,
    so that a curve or column that is alone keeps the name that earlier versions have given it. None gets a known one.
    """
    new = [original for original in originals if original not in known]
    sharers = Counter(map(name, new))
    taken = set(known.values())

    def is_confused(original: str) -> bool:
        plain = name(original)
        return plain in taken or (sharers[plain] > 1 and plain != original)

    given = {original: _with_hash(original) if is_confused(original) else name(original) for original in new}
    return {original: known.get(original) or given[original] for original in originals}


def _with_hash(original: str) -> str:
    suffix = "_" + sha256(original.encode(errors="surrogatepass")).hexdigest()[:HASH_LENGTH]
    return name(original)[: NAME_LENGTH - len(suffix)] + suffix


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
