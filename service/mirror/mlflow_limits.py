"""What MLflow takes: names, lengths and numbers, so that no event can be refused for its form."""

import json
import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any

NAME_LENGTH = 250
EXPERIMENT_NAME_LENGTH = 500
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
_FOREIGN = re.compile(r"[^\w\-. :/]")
_WORDS = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


def name(text: str) -> str:
    """`text` as the name of a metric, parameter or tag: MLflow refuses brackets, and paths that climb."""
    legal = _FOREIGN.sub("_", text)[:NAME_LENGTH]
    climbs = legal.startswith(("/", "..")) or posixpath.normpath(legal) != legal
    taken = legal.replace("/", "_").replace("..", "_") if climbs else legal
    return "_" if taken in {"", "."} else taken


def number(value: Any) -> float | None:
    """`value` as a metric, or None where it is none. JSON has no NaN: it comes as a word, as do the infinities."""
    if isinstance(value, str):
        return _WORDS.get(value.lower())
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def text(value: Any, length: int = TAG_LENGTH) -> str:
    """`value` to be read by people and parsed again: structures as JSON; cut, visibly, at `length` characters."""
    whole = json.dumps(value) if isinstance(value, Mapping | list | tuple) else str(value)
    return whole if len(whole) <= length else whole[: length - 1] + "…"


def texts(values: Mapping[str, Any], length: int = TAG_LENGTH) -> dict[str, str]:
    """`values` as tags or parameters; what is None is left out."""
    return {name(key): text(value, length) for key, value in values.items() if value is not None}
