"""A package that registers something with a library, which refuses a second registration under the same name."""

import os
from pathlib import Path
from typing import Any

import ray.train
from prometheus_client import Counter

STEPS = None if os.environ.get("REGISTER") == "late" else Counter("steps_of_the_tested_package", "Steps.")


def train_fn(config: dict[str, Any]) -> None:
    steps = STEPS or Counter("late_steps_of_the_tested_package", "Steps.")
    steps.inc()
    with Path(config["record"]).open("a") as file:
        file.write(f"{ray.train.get_context().get_world_rank()} pid {os.getpid()}\n")
    ray.train.report({"epoch": 1})
