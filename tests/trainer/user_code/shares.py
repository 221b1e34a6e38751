"""A second module of the tests' package, whose function runs in Ray Data's tasks."""

from typing import Any


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["id"] * 2}
