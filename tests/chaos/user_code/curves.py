"""The metric of the training function: a function of the configuration and the step only.

So the audit can compute, without training, what each value of a curve must be.
"""

from collections.abc import Mapping
from typing import Any


def loss(config: Mapping[str, Any], step: int) -> float:
    """Return a loss that falls with `step` towards a floor that depends on the parameters."""
    floor = abs(float(config["x"]) - 0.3) + 0.01 * int(config.get("width", 1))
    bend = 0.5 + float(config.get("bend", 0.0))
    return floor + 1 / (1 + bend * step)
