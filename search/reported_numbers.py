"""Metrics as numbers. A report may have a number as a text, such as `"0.5"`."""

import math
import re
from collections.abc import Mapping
from typing import Any

_NOT_FINITE = re.compile(r"\s*[-+]?(nan|inf|infinity)\s*", re.ASCII | re.IGNORECASE)
_DECIMAL = re.compile(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*", re.ASCII)
"""Python's `float` also reads digits of other scripts, and underscores."""

_MAX_LENGTH = 1000
"""Of a number, in characters. The shortest texts of all floats have at most 24."""


def number_in(metrics: Mapping[str, Any], name: str) -> float | None:
    """A reported metric as a finite number; None if it is missing or not one."""
    return finite_number(metrics.get(name))


def is_number(reported: Any) -> bool:
    """Whether a reported value is a number, finite or not. A text may be one, as `"0.5"`, `"NaN"` or `"-inf"`."""
    if isinstance(reported, str):
        return is_decimal(reported) or _NOT_FINITE.fullmatch(reported) is not None
    return isinstance(reported, int | float)


def is_decimal(text: str) -> bool:
    """Whether a text is a number with digits, such as `-1.5e3`."""
    return len(text) <= _MAX_LENGTH and _DECIMAL.fullmatch(text) is not None


def finite_number(reported: Any) -> float | None:
    """A reported value as a finite number; None if it is not one."""
    if isinstance(reported, str) and not is_decimal(reported):
        return None
    try:
        value = float(reported)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
