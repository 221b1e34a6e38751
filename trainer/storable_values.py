"""Values that JSON and every database can hold: text without NUL and lone surrogates, floats that are finite; metrics.

The service and the code in Ray's processes share these rules. The module imports only the standard library, because it
travels to the cluster by value.
"""

import contextlib
import math
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import Any

NOT_JSON = object()

Converter = Callable[[float], Any]

OMISSION = "\n[... {count} characters left out ...]\n"


def storable_text(text: str, max_length: int | None = None) -> str:
    """The text with `?` for each NUL and each lone surrogate, and without its middle beyond `max_length` characters."""
    clean = text.replace("\0", "?").encode("utf-8", "replace").decode()
    return clean if max_length is None else _without_middle(clean, max_length)


def is_storable_text(text: str) -> bool:
    """Whether `storable_text` leaves the text as it is."""
    return storable_text(text) == text


def storable_float(value: float) -> float | str:
    """The value as a Python float, or the string "NaN", "Infinity" or "-Infinity", for which JSON has no number."""
    if math.isfinite(value):
        return float(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_metrics(
    metrics: dict[str, Any], convert_float: Converter = storable_float
) -> tuple[dict[str, Any], list[str]]:
    """The metrics as JSON values, and the names of those that have none.

    Decimals, fractions, NumPy's scalars, and arrays and tensors with one element, become numbers. NaN and the
    infinities, to which whole numbers belong that no float can hold, become text, as by `storable_float`.
    """
    values = {storable_text(str(name)): _json(value, convert_float) for name, value in metrics.items()}
    dropped = [name for name, value in values.items() if value is NOT_JSON]
    return {name: value for name, value in values.items() if value is not NOT_JSON}, dropped


def metrics_for_ray(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics as Ray Train can write them to its snapshots: it fails at a NumPy scalar or a tensor, but not at NaN.

    With its controller the whole attempt would fail.
    """
    return json_metrics(metrics, convert_float=float)[0]


def _without_middle(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    omission = OMISSION.format(count=len(text) - max_length)
    head = (max_length - len(omission)) // 2
    tail = max_length - len(omission) - head
    return text[:head] + omission + text[len(text) - tail :]


def _json(value: Any, convert_float: Converter) -> Any:
    match value:
        case None | bool() | int():
            return value if value is None or isinstance(value, bool) else _whole(value, convert_float)
        case str():
            return storable_text(value)
        case float():
            return convert_float(value)
        case dict():
            return json_metrics(value, convert_float)[0]
        case list() | tuple():
            return [item for one in value if (item := _json(one, convert_float)) is not NOT_JSON]
        case _:
            item = _item_or_not_json(value)
            return _json(item, convert_float) if type(item) is not type(value) else _real(value, convert_float)


def _whole(value: int, convert_float: Converter) -> Any:
    """The number, as a plain one: of a subclass, such as an IntEnum, Ray would store the class.

    One that no float can hold becomes infinite: Python writes integers as text only up to 4,300 digits.
    """
    try:
        float(value)
    except OverflowError:
        return convert_float(math.inf if value > 0 else -math.inf)
    return int(value)


def _real(value: Any, convert_float: Converter) -> Any:
    """A number of another type, such as a Decimal or a Fraction, as a float; NOT_JSON if it is none, or too large."""
    if isinstance(value, Real | Decimal):
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            return convert_float(float(value))
    return NOT_JSON


def _is_masked(value: Any) -> bool:
    """Whether the one element of NumPy's masked array has no value. Its `item()` would be 0, or what is masked."""
    return _element_count(value) == 1 and bool(value.mask)


def _item_or_not_json(value: Any) -> Any:
    """As `_item`; NOT_JSON where that raises, as for a tensor without storage.

    On a GPU, what raises may be the training: its errors come when a value is read.
    """
    try:
        return _item(value)
    except Exception:
        if _is_on_device(value):
            raise
        return NOT_JSON


def _is_on_device(value: Any) -> bool:
    """Whether it is a tensor that another processor computes."""
    with contextlib.suppress(Exception):  # it may be an object of any class
        return str(getattr(value, "device", "cpu")).partition(":")[0] not in ("cpu", "meta")
    return False


def _item(value: Any) -> Any:
    """The one element of an array or a tensor; the value itself if there are more, or none."""
    if type(value).__module__.startswith("numpy.ma") and _is_masked(value):
        return math.nan
    if hasattr(value, "item"):
        return value.item() if _element_count(value) == 1 else value
    if hasattr(value, "numpy"):  # a tensor of TensorFlow, which has a value unless it is symbolic
        with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError, TypeError):
            return value.numpy()
    return value


def _element_count(value: Any) -> Any:
    """The number of elements of an array or a tensor. A NumPy scalar has one; torch's `size` is a method."""
    return value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
