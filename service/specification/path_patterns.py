"""Patterns for the paths of fields in a specification."""

from search.mistakes import Path

ANY = "*"
"""Any name or index."""


def matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(one in (ANY, part) for one, part in zip(pattern, path, strict=True))
