"""Parameters and metrics as text: in the spelling of JSON, so that what is read can be given back to `enqueue`."""

import json
from collections.abc import Mapping
from typing import Any

DIGITS = 4
"""Of a number among the parameters of a row."""

FIRST_WITH_EXPONENT = 1e15
"""Up to about here floats are exact integers."""


def parameters(values: Mapping[str, Any], digits: int | None = DIGITS) -> str:
    """`lr=0.01235, nesterov=true, optimizer=sgd`"""
    return ", ".join(f"{name}={value_text(value, digits)}" for name, value in values.items())


def value_text(value: Any, digits: int | None = None) -> str:
    """A value of JSON, a float with this many significant digits, or with all.

    A text is bare, unless it would read as another value: `true` is the boolean, `"true"` the text.
    """
    if isinstance(value, str) and value and not _is_json(value):
        return value
    if isinstance(value, float) and digits is not None:
        return float_text(value, digits)
    return json.dumps(value, ensure_ascii=False)


def float_text(value: float, digits: int) -> str:
    """The number with this many significant digits; but with all digits before the point, so that times can be read."""
    rounded = f"{value:.{digits}g}"
    return f"{value:.0f}" if 10**digits <= abs(float(rounded)) < FIRST_WITH_EXPONENT else rounded


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    """Python's parser takes NaN and the infinities, which JSON does not have."""
    raise ValueError(name)
