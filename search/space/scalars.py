"""JSON scalars: the values of categorical parameters and of conditions."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

SCALAR_TYPES = "a string, a number, true, false or null"
NO_SCALAR = f"must be {SCALAR_TYPES}"


def _a_scalar(value: Any) -> Any:
    finite = not isinstance(value, float) or math.isfinite(value)
    if value is None or (isinstance(value, str | int | float) and finite):
        return value
    raise ValueError(NO_SCALAR)


Scalar = Annotated[str | int | float | bool | None, BeforeValidator(_a_scalar)]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0, but not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def identity(value: Any) -> tuple[bool, Any]:
    """Equal for values that are the `same`, and a key of a dict."""
    return isinstance(value, bool), value


def positions(values: Sequence[Scalar]) -> dict[tuple[bool, Scalar], int]:
    """The index of each value by its `identity`: to look for each of thousands of values takes seconds."""
    return {identity(value): index for index, value in enumerate(values)}


def repetitions(values: Iterable[Scalar]) -> dict[int, str]:
    """The message for each index whose value is the `same` as an earlier one. Linear in the number of values."""
    before: set[tuple[bool, Scalar]] = set()
    found: dict[int, str] = {}
    for index, value in enumerate(values):
        known = identity(value)
        if known in before:
            found[index] = f"{shown(value)} appears twice"
        before.add(known)
    return found
