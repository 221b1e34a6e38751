"""What `auto`, its two samplers and Optuna's find of functions with one valley and with many.

Printed are the median regrets after 25, 50, 100, … trials, and the regret at the end divided by that of `auto` with the
same seed: the geometric mean with its 95 % bootstrap interval. Above 1 the other one is worse. `hartmann`, `rosenbrock`
and `network` have few local optima; `rastrigin`, `styblinski`, `levy` and `ackley` have many. The formulas are those of
https://www.sfu.ca/~ssurjano/optimization.html; `network` is a made-up loss of a training with eight parameters.

    python -m benchmarks.local_optima [--problems hartmann rastrigin …] [--trials 100] [--seeds 12] [--first-seed 0]
                                      [--searchers "paceline auto" "paceline gp" "paceline tpe" "optuna gp" …]
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import hartmann
from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import (
    OPTUNAS_AND_OURS,
    Params,
    Searcher,
    SequentialTask,
    by_paceline,
    run_from_command_line,
)

HERE = "paceline auto"
LEAST_REGRET = 1e-4
"""Smaller ones are equal."""
SHOWN = 25, 50, 100, 200, 400, 800

Values = NDArray[np.float64]

LEAST_OF_HARTMANN = -3.32237


def rosenbrock(x: Values) -> float:
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def rastrigin(x: Values) -> float:
    return float((x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum())


def styblinski(x: Values) -> float:
    return float((x**4 - 16 * x**2 + 5 * x).sum() / 2 + 39.16617 * len(x))


def levy(x: Values) -> float:
    w = 1 + (x - 1) / 4
    inner = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)).sum()
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


def ackley(x: Values) -> float:
    near = 20 * math.exp(-0.2 * math.sqrt((x**2).mean()))
    return float(20 + math.e - near - math.exp(np.cos(2 * np.pi * x).mean()))


_BEST_RATES = {"sgd": -1.2, "adam": -3.0, "rmsprop": -3.4, "lamb": -2.4}
_BY_ACTIVATION = {"relu": 0.0, "gelu": -0.01, "tanh": 0.04, "silu": -0.008}
_LEAST_OF_NETWORK = 0.0323


def network(params: Params) -> float:
    rate, decay = math.log10(params["rate"]), math.log10(params["decay"])
    best_rate = _BEST_RATES[params["optimizer"]] - 0.1 * params["layers"] + 0.25 * math.log2(params["batch"] / 32)
    capacity = math.log2(params["width"]) / 10 * params["layers"] ** 0.5
    fit = 0.04 + 0.5 * math.exp(-1.6 * capacity) + 0.05 * (rate - best_rate) ** 2
    too_large = max(0.0, 0.06 * capacity - 0.25 * params["dropout"] - 0.02 * (decay + 6)) ** 2
    too_small = 0.2 * max(0.0, 0.9 * params["dropout"] - 0.4 * capacity) ** 2
    return float(min(2.3, fit + _BY_ACTIVATION[params["activation"]] + too_large + too_small) - _LEAST_OF_NETWORK)


def _numbers(count: int, low: float, high: float) -> dict[str, Any]:
    return {f"x{index}": {"type": "float", "low": low, "high": high} for index in range(count)}


def _of_numbers(function: Callable[[Values], float], count: int, low: float, high: float) -> SequentialTask:
    space = _numbers(count, low, high)
    return SequentialTask(space, lambda params: function(np.array([params[name] for name in space])))


def _log(low: float, high: float, kind: str = "float") -> dict[str, Any]:
    return {"type": kind, "low": low, "high": high, "log": True}


_NETWORK = {
    "rate": _log(1e-5, 1),
    "decay": _log(1e-7, 0.1),
    "dropout": {"type": "float", "low": 0, "high": 0.7},
    "layers": {"type": "int", "low": 1, "high": 8},
    "width": _log(8, 1024, "int"),
    "batch": _log(16, 512, "int"),
    "optimizer": {"type": "categorical", "choices": [*_BEST_RATES]},
    "activation": {"type": "categorical", "choices": [*_BY_ACTIVATION]},
}

TASKS = {
    "hartmann": SequentialTask(_numbers(6, 0, 1), lambda params: hartmann(dict(params))[0] - LEAST_OF_HARTMANN),
    "rosenbrock": _of_numbers(rosenbrock, 6, -2, 2),
    "network": SequentialTask(_NETWORK, network),
    "rastrigin": _of_numbers(rastrigin, 4, -4, 5.12),
    "styblinski": _of_numbers(styblinski, 5, -5, 5),
    "levy": _of_numbers(levy, 8, -10, 10),
    "ackley": _of_numbers(ackley, 10, -20, 32),
}

SEARCHERS: dict[str, Searcher] = {HERE: partial(by_paceline, "auto"), **OPTUNAS_AND_OURS}


def regrets(searcher: str, name: str, trials: int, seeds: Sequence[int]) -> Values:
    """A row for each seed, with the least regret so far after each trial."""
    found = [SEARCHERS[searcher](TASKS[name], seed, trials) for seed in seeds]
    losses = np.array([[math.inf if loss is None else loss for loss in one] for one in found])
    return np.maximum(np.minimum.accumulate(losses, axis=1), LEAST_REGRET)


def report(name: str, searchers: Sequence[str], trials: int, seeds: Sequence[int]) -> None:
    found: dict[str, Values] = {}
    shown = [count for count in SHOWN if count <= trials]
    print(f"\n{name}: after {', '.join(map(str, shown))} trials", flush=True)
    for searcher in searchers:
        found[searcher] = regrets(searcher, name, trials, seeds)
        medians = " ".join(f"{np.median(found[searcher][:, count - 1]):9.4f}" for count in shown)
        pair = searcher != HERE and HERE in found
        ratio = geometric_mean(np.log(found[searcher][:, -1] / found[HERE][:, -1])) if pair else ""
        print(f"  {searcher:13} {medians}   {ratio}", flush=True)


if __name__ == "__main__":
    run_from_command_line(__doc__, TASKS, SEARCHERS, report, trials=100)
