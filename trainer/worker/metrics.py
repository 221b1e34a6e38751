"""Metrics as JSON values."""

from typing import Any

from trainer.storable_values import storable_float, storable_text

NOT_JSON = object()


def json_metrics(metrics: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The metrics as JSON values, and the names of those that have none.

    NumPy's scalars become numbers. NaN and the infinities become text, as in `trainer.storable_values`.
    """
    values = {storable_text(str(name)): _json(value) for name, value in metrics.items()}
    dropped = [name for name, value in values.items() if value is NOT_JSON]
    return {name: value for name, value in values.items() if value is not NOT_JSON}, dropped


def _json(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return storable_text(value)
        case float():
            return storable_float(value)
        case dict():
            return json_metrics(value)[0]
        case list() | tuple():
            return [item for item in map(_json, value) if item is not NOT_JSON]
        case _:
            is_scalar = hasattr(value, "item") and getattr(value, "size", 1) == 1
            return _json(value.item()) if is_scalar else NOT_JSON
