"""Metrics as JSON can say them."""

import math
from typing import Any

from trainer.text import storable

DROPPED = object()


def plain(metrics: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The metrics as JSON values, and the names of those that have none.

    NumPy's scalars become numbers. NaN and the infinities, for which JSON has no number, become the strings "NaN",
    "Infinity" and "-Infinity".
    """
    values = {storable(str(name)): _plain(value) for name, value in metrics.items()}
    dropped = [name for name, value in values.items() if value is DROPPED]
    return {name: value for name, value in values.items() if value is not DROPPED}, dropped


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return storable(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, dict):
        return plain(value)[0]
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return [item for item in items if item is not DROPPED]
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return _plain(value.item())
    return DROPPED


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
