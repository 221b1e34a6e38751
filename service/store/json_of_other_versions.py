"""Values in JSON columns, some of which another version of the service has written.

Two versions work side by side during an upgrade, and an earlier one works on after a way back
(`docs/operations/upgrades.md`).
"""

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def stored(kind: type[M], value: Any) -> M:
    """Parse a stored JSON value; ignore fields of later versions."""
    return kind.model_validate(value, extra="ignore")
