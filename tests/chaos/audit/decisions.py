"""The facts of a decision that the audit recomputes."""

from collections.abc import Mapping
from typing import Any

FACTS = ("decision", "milestone", "value", "cutoff", "compared_count")

Facts = dict[str, Any]


def facts(decision: str, milestone: int, value: float, cutoff: float | None, compared_count: int) -> Facts:
    return dict(zip(FACTS, (decision, milestone, value, cutoff, compared_count), strict=True))


def facts_of(stored: Mapping[str, Any]) -> Facts:
    """The facts of an event, or of a row."""
    return {name: stored.get(name) for name in FACTS}
