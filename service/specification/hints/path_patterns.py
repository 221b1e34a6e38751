"""Paths of fields in a specification: patterns for them, and the values that they lead to."""

from typing import Any

from search.mistakes import Path

ANY = "*"
"""Any name or index."""


def matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(one in (ANY, part) for one, part in zip(pattern, path, strict=True))


def item_at(value: Any, part: str | int) -> Any:
    """None where there is no such field or entry."""
    try:
        return value[part]
    except (KeyError, IndexError, TypeError):
        return None
