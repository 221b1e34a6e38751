"""The leading trial ends soon; every other one reports until it is stopped."""

import time
from typing import Any

from timestamps import Timestamps

LEADER_STEPS, STEPS, STEP_SECONDS = 3, 1200, 0.05


def train_fn(config: dict[str, Any]) -> None:
    """Report the configuration's `quality` at each step; the leader's is 1."""
    with Timestamps(config) as timestamps:
        for step in range(1, (LEADER_STEPS if config["quality"] == 1 else STEPS) + 1):
            timestamps.report({"step": step, "quality": config["quality"]})
            time.sleep(STEP_SECONDS)
