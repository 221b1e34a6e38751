"""Interpolation on a logarithmic scale."""

import math


def interpolate_log(low: float, high: float, share: float) -> float:
    """The value at this share of the way from `low` > 0 to `high`: 0 gives `low`, 1 gives `high`, up to rounding."""
    ratio = high / low
    if math.isfinite(ratio):
        return low * math.pow(ratio, share)
    # Ends such as 1e-300 and 1e300: no float holds their quotient.
    return math.pow(low, 1 - share) * math.pow(high, share)
