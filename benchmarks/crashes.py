"""What a search finds where a third of the space or more crashes, beside Optuna's samplers and random draws.

Optuna learns nothing of a trial that has failed. Printed are the median regret, the share of trials that crashed, and
the regret divided by that of Paceline's `gp` with the same seed: the geometric mean with its 95 % bootstrap interval.
Above 1 the other one is worse. In `memory` the best models are the largest that have room, in `rate` the best rates are
beside those at which a training raises an error, and in `kinds` some combinations of choices are not supported.

    python -m benchmarks.crashes [--problems memory rate kinds] [--trials 40] [--seeds 12] [--first-seed 0]
                                 [--searchers "paceline gp" "paceline tpe" "optuna gp" "optuna tpe" random]
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import OPTUNAS_AND_OURS, Params, SequentialTask, run_from_command_line

HERE = "paceline gp"
LEAST_REGRET = 1e-4
"""Smaller ones are equal."""
DRAWS = 100_000
"""By which the least loss is known."""

Values = NDArray[np.float64]


def memory(params: Params) -> float | None:
    width, depth, batch = math.log2(params["width"]), params["depth"], math.log2(params["batch"])
    if width + math.log2(depth) + batch > 18:
        return None
    rate = math.log10(params["rate"]) + 3 - 0.15 * (batch - 5)
    return float(0.1 + 2 ** (-0.35 * width) + 0.3 / depth + 0.05 * rate**2 + 0.02 * (batch - 6) ** 2)


def rate(params: Params) -> float | None:
    pace = math.log10(params["rate"] / (1 - params["momentum"]))
    if pace > -0.7 + 0.4 * params["warm_up"]:
        return None
    return float(0.1 + 0.1 * (pace + 0.3) ** 2 + 0.3 * (params["momentum"] - 0.8) ** 2 + 0.1 * params["warm_up"] ** 2)


_BY_OPTIMIZER = {"sgd": 0.3, "adamw": 0.15, "lion": 0.12, "lamb": 0.2}
_BY_PRECISION = {"fp8": 0.0, "bf16": 0.02, "fp32": 0.05}


def kinds(params: Params) -> float | None:
    optimizer, precision = params["optimizer"], params["precision"]
    if (precision == "fp8" and optimizer != "adamw") or (params["fused"] and optimizer in {"lion", "lamb"}):
        return None
    loss = _BY_OPTIMIZER[optimizer] + _BY_PRECISION[precision] - 0.01 * params["fused"]
    return float(loss + 0.1 * (math.log10(params["rate"]) + 3) ** 2 + 0.2 * params["dropout"] ** 2)


def _log(low: float, high: float, kind: str = "float") -> dict[str, Any]:
    return {"type": kind, "low": low, "high": high, "log": True}


def _choice(*choices: Any) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(choices)}


_RATE, _UNIT = _log(1e-5, 1), {"type": "float", "low": 0.0, "high": 1.0}

TASKS = {
    "memory": SequentialTask(
        {
            "width": _log(16, 8192, "int"),
            "depth": {"type": "int", "low": 1, "high": 16},
            "batch": _log(8, 1024, "int"),
            "rate": _RATE,
        },
        memory,
    ),
    "rate": SequentialTask(
        {"rate": _RATE, "momentum": {"type": "float", "low": 0.0, "high": 0.99}, "warm_up": _UNIT}, rate
    ),
    "kinds": SequentialTask(
        {
            "optimizer": _choice("sgd", "adamw", "lion", "lamb"),
            "precision": _choice("fp8", "bf16", "fp32"),
            "fused": _choice(False, True),
            "rate": _RATE,
            "dropout": _UNIT,
        },
        kinds,
    ),
}


@cache
def least_loss(name: str) -> float:
    chance, task = np.random.default_rng(0), TASKS[name]
    losses = (task.loss({key: _drawn(one, chance) for key, one in task.space.items()}) for _ in range(DRAWS))
    return min(loss for loss in losses if loss is not None)


def _drawn(parameter: Mapping[str, Any], chance: np.random.Generator) -> Any:
    if parameter["type"] == "categorical":
        return parameter["choices"][chance.integers(len(parameter["choices"]))]
    low, high = parameter["low"], parameter["high"]
    is_log = parameter.get("log", False)
    value = math.exp(chance.uniform(math.log(low), math.log(high))) if is_log else chance.uniform(low, high)
    return round(value) if parameter["type"] == "int" else value


def report(name: str, searchers: Sequence[str], trials: int, seeds: Sequence[int]) -> None:
    regrets: dict[str, Values] = {}
    for searcher in searchers:
        found = [OPTUNAS_AND_OURS[searcher](TASKS[name], seed, trials) for seed in seeds]
        crashed = np.mean([loss is None for losses in found for loss in losses])
        best = [min((loss for loss in losses if loss is not None), default=math.inf) for losses in found]
        regrets[searcher] = np.maximum(np.array(best) - least_loss(name), LEAST_REGRET)
        ratio = (
            geometric_mean(np.log(regrets[searcher] / regrets[HERE])) if searcher != HERE and HERE in regrets else ""
        )
        print(
            f"{name:7} {searcher:13} regret {np.median(regrets[searcher]):.4f}, {crashed:4.0%} crashed   {ratio}",
            flush=True,
        )


if __name__ == "__main__":
    run_from_command_line(__doc__, TASKS, OPTUNAS_AND_OURS, report, trials=40)
