"""Fields of a stored document that only a later version of the service knows, and that have no value there."""

from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from search.mistakes import UNKNOWN, Path


def unknown_fields(error: ValidationError) -> dict[Path, Any]:
    """The values of the fields that the model does not know, by their places; empty if it has other errors."""
    unknown = [one for one in error.errors() if one["type"] == "extra_forbidden" or one["msg"] == UNKNOWN]
    return {one["loc"]: one["input"] for one in unknown} if len(unknown) == error.error_count() else {}


def without_unused(document: dict[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """The document without the fields that the model does not know; None if one of them is used, or for other errors.

    A later version stores its own fields with every specification. One that is not empty makes a difference.
    """
    unknown = unknown_fields(error)
    if not unknown or any(unknown.values()):
        return None
    copy = deepcopy(document)
    for *above, field in unknown:
        parent: Any = copy
        for key in above:
            if not isinstance(parent, dict) or key in parent:  # else it names a member of a union
                parent = parent[key]
        del parent[field]
    return copy
