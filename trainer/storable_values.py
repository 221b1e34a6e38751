"""Values that JSON and every database can hold: text without NUL and lone surrogates, floats that are finite.

The service and the code in Ray's processes share these rules. The module imports only the standard library, because it
travels to the cluster by value.
"""

import math

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


def _without_middle(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    omission = OMISSION.format(count=len(text) - max_length)
    head = (max_length - len(omission)) // 2
    tail = max_length - len(omission) - head
    return text[:head] + omission + text[len(text) - tail :]
