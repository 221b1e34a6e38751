"""What JSON's parser calls for objects and integers."""

from collections import Counter
from typing import Any

_LARGER_THAN_64_BITS = 25
"""A number with this many digits."""


WRITTEN_TWICE = "is written twice in one object; keep one"
"""The message of a mistake."""


class RepeatingObject(dict[str, Any]):
    """An object with several fields of one name. Only the parser's caller knows where in the document it is."""

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        super().__init__(fields)
        self.repeated = [name for name, count in Counter(name for name, _ in fields).items() if count > 1]


def any_object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object for JSON's parser, which would keep the last of several fields of one name."""
    found = dict(fields)
    return found if len(found) == len(fields) else RepeatingObject(fields)


def integer(digits: str) -> int:
    """The integer, or another one above 64 bits if it is that large: Python takes quadratic time for long integers."""
    return int(digits[:_LARGER_THAN_64_BITS])
