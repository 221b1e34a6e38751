"""A trial that leads ends soon; one that does not goes on reporting until it is stopped."""

import time
from typing import Any

from marks import Marks

LEADER_STEPS, STEPS, STEP_SECONDS = 3, 1200, 0.05


def train_fn(config: dict[str, Any]) -> None:
    """`quality`: the trial's, at each step; 1 is the leader's."""
    with Marks(config) as marks:
        for step in range(1, (LEADER_STEPS if config["quality"] == 1 else STEPS) + 1):
            marks.report({"step": step, "quality": config["quality"]})
            time.sleep(STEP_SECONDS)
