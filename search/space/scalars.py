"""JSON scalars: the values of categorical parameters and of conditions."""

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator

type_names = "a string, a number, true, false or null"


def _a_scalar(value: Any) -> Any:
    finite = not isinstance(value, float) or math.isfinite(value)
    if value is None or (isinstance(value, str | int | float) and finite):
        return value
    raise ValueError(f"must be {type_names}")


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")  # noqa: TRY004 (pydantic wants a ValueError)
    return value


Scalar = Annotated[str | int | float | bool | None, BeforeValidator(_a_scalar)]
NotABool = BeforeValidator(_not_a_bool)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def repetitions(values: Iterable[Scalar]) -> dict[int, str]:
    """The places of those that are the `same` as one before them, with what is wrong. Also of many thousands."""
    before: set[tuple[bool, Scalar]] = set()
    found: dict[int, str] = {}
    for place, value in enumerate(values):
        known = isinstance(value, bool), value
        if known in before:
            found[place] = f"{shown(value)} is there already"
        before.add(known)
    return found
