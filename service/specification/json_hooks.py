"""What JSON's parser calls for objects and integers."""

from collections import Counter
from itertools import islice
from typing import Any

from search.mistakes import Mistake, shortened
from service.errors import Invalid

MAX_MISTAKES = 20
"""The most mistakes of a document that an answer names."""

_LARGER_THAN_64_BITS = 25
"""A number with this many digits."""


def object_of_unique_names(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object for JSON's parser, which would keep the last of several fields of one name. Raises Invalid."""
    found = dict(fields)
    if len(found) < len(fields):
        counts = Counter(name for name, _ in fields)
        repeated = islice((name for name, count in counts.items() if count > 1), MAX_MISTAKES)
        raise Invalid([Mistake((shortened(name),), "is written twice in one object; keep one") for name in repeated])
    return found


def integer(digits: str) -> int:
    """The integer, or another one above 64 bits if it is that large: Python takes quadratic time for long integers."""
    return int(digits[:_LARGER_THAN_64_BITS])
