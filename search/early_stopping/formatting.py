"""Numbers as they appear in the sentences and the JSON of decisions."""

import math


def compared(value: float, cutoff: float) -> tuple[str, str]:
    """`0.71` and `below 0.83`, with as many digits as are needed to distinguish them."""
    relation = "equal to" if value == cutoff else "above" if value > cutoff else "below"
    digits = next((count for count in range(6, 17) if f"{value:.{count}g}" != f"{cutoff:.{count}g}"), 17)
    digits = 6 if value == cutoff else digits
    return f"{value:.{digits}g}", f"{relation} {cutoff:.{digits}g}"


def if_finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
