"""A package whose training function runs a task of Ray's with a function of the package."""

import sys
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray import cloudpickle


def helper(number: int) -> int:
    return 2 * number


@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
def double(number: int) -> int:
    return helper(number)


def train_fn(config: dict[str, Any]) -> None:
    if config["by_value"]:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
    Path(config["record"]).write_text(str(ray.get(double.remote(3))))
    ray.train.report({"epoch": 1})
