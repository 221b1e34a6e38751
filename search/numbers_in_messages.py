"""Numbers in messages."""

import math

MAX_DIGITS = 16
"""With so many significant digits a float is shown with its error: 0.3 as 0.29999999999999999."""

LARGEST = 1e300


def distinct_texts(*numbers: float) -> list[str]:
    """Each number with six significant digits, or with as many more as it takes to tell different ones apart.

    If that takes all digits, as Python and JSON write them: 0.3, not 0.29999999999999999.
    """
    for digits in range(6, MAX_DIGITS + 1):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            return texts
    return [repr(number) for number in numbers]


def resolved(number: float, *parts: float) -> str:
    """The number with six significant digits, or with as many more as show three digits of each part.

    The parts are not 0. If that takes all digits, as Python and JSON write the number.
    """
    digits = max((_magnitude(number) - _magnitude(part) + 3 for part in parts), default=0)
    return f"{number:.{max(6, digits)}g}" if digits < MAX_DIGITS else repr(number)


def _magnitude(number: float) -> int:
    return math.floor(math.log10(abs(number))) if number else 0


def counted(count: float, noun: str) -> str:
    """The noun with how many there are: `1 trial`, `2 trials`, `0.5 GPUs`. A number may be too large for a float."""
    if count > LARGEST:
        return f"over {LARGEST:g} {noun}s"
    return f"{count:.12g} {noun}" if count == 1 else f"{count:.12g} {noun}s"
