"""Metrics as JSON values."""

from collections.abc import Callable
from typing import Any

from trainer.storable_values import storable_float, storable_text

NOT_JSON = object()

Converter = Callable[[float], Any]


def json_metrics(
    metrics: dict[str, Any], convert_float: Converter = storable_float
) -> tuple[dict[str, Any], list[str]]:
    """The metrics as JSON values, and the names of those that have none.

    NumPy's scalars become numbers. NaN and the infinities become text, as in `trainer.storable_values`.
    """
    values = {storable_text(str(name)): _json(value, convert_float) for name, value in metrics.items()}
    dropped = [name for name, value in values.items() if value is NOT_JSON]
    return {name: value for name, value in values.items() if value is not NOT_JSON}, dropped


def metrics_for_ray(metrics: dict[str, Any]) -> dict[str, Any]:
    """Those that Ray Train can write to its snapshots: it fails at a NumPy scalar, but not at NaN.

    With its controller the whole attempt would fail.
    """
    return json_metrics(metrics, convert_float=float)[0]


def _json(value: Any, convert_float: Converter) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return storable_text(value)
        case float():
            return convert_float(value)
        case dict():
            return json_metrics(value, convert_float)[0]
        case list() | tuple():
            return [item for one in value if (item := _json(one, convert_float)) is not NOT_JSON]
        case _:
            is_scalar = hasattr(value, "item") and getattr(value, "size", 1) == 1
            item = value.item() if is_scalar else value
            return _json(item, convert_float) if type(item) is not type(value) else NOT_JSON
