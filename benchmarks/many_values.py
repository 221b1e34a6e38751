"""How long a proposal of `gp` takes where numbers have many values, and what a search finds, beside Optuna's GPSampler.

The loss is a bowl with ripples, whose least value and widths are drawn with the seed. Printed are the processor time of
a proposal, and the regret at the end: that of Paceline divided by Optuna's with the same seed, as the geometric mean
with its 95 % bootstrap interval. Below 1 Paceline's is better. OMP_NUM_THREADS=1 makes the times comparable.

    python -m benchmarks.many_values [--trials 40] [--seeds 8] [--spaces training integers steps few]
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna

from benchmarks.harness.ratios import geometric_mean
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.conversion import distributions_of
from search.space.space import Space
from search.study import Study, StudyView

LEAST_REGRET = 1e-6
"""Smaller ones count as much: they are those of the grid."""

SPACES: dict[str, dict[str, Any]] = {
    "training": {
        "batch": {"type": "int", "low": 8, "high": 1024, "log": True},
        "units": {"type": "int", "low": 16, "high": 4096, "log": True},
        "layers": {"type": "int", "low": 1, "high": 8},
        "warm_up": {"type": "int", "low": 0, "high": 500},
        "lr": {"type": "float", "low": 1e-5, "high": 1, "log": True},
    },
    "integers": {name: {"type": "int", "low": 0, "high": 99} for name in "abcd"},
    "steps": {name: {"type": "float", "low": 0, "high": 1, "step": 0.02} for name in "abcd"},
    "few": {name: {"type": "int", "low": 0, "high": 29} for name in "abcd"},
}

Params = Mapping[str, Any]
Searched = tuple[float, float]
"""The least loss, and the seconds of processor time for each proposal."""


class Loss:
    """From 0, of the params by their places between 0 and 1."""

    def __init__(self, space: Mapping[str, Any], seed: int) -> None:
        chance = np.random.default_rng(seed)
        self._space = space
        self._best, self._widths = chance.uniform(0.15, 0.85, len(space)), chance.uniform(0.5, 3, len(space))

    def __call__(self, params: Params) -> float:
        away = np.array([_place(one, params[name]) for name, one in self._space.items()]) - self._best
        bowl = (self._widths * away**2).sum() + 0.4 * (away[0] - away[-1]) ** 2
        return float(bowl + 0.15 * (1 - np.cos(3 * math.pi * away)).mean())


def _place(parameter: Mapping[str, Any], value: float) -> float:
    scale: Callable[[float], float] = math.log if parameter.get("log") else float
    low, high = scale(parameter["low"]), scale(parameter["high"])
    return (scale(value) - low) / (high - low)


def by_paceline(parameters: Mapping[str, Any], seed: int, trials: int) -> Searched:
    problem = Problem(Space.model_validate(parameters), ("minimize",), max_trials=trials)
    view, loss = StudyView(Study(problem, SamplerSpec(sampler="gp"), seed)), Loss(parameters, seed)
    losses, seconds = [], 0.0
    for number in range(trials):
        began = time.process_time()
        params = view.propose([], number)
        seconds += time.process_time() - began
        losses.append(loss(params))
        view.update([Observation(number, params, "completed", (losses[-1],))])
    return min(losses), seconds / trials


def by_optuna(parameters: Mapping[str, Any], seed: int, trials: int) -> Searched:
    distributions, loss = distributions_of(Space.model_validate(parameters)), Loss(parameters, seed)
    study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=seed))
    seconds = 0.0
    for _ in range(trials):
        began = time.process_time()
        trial = study.ask(distributions)
        seconds += time.process_time() - began
        study.tell(trial, loss(trial.params))
    return study.best_value, seconds / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=[*SPACES])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=8)
    arguments = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    for name in arguments.spaces:
        found = [
            (by_paceline(SPACES[name], seed, arguments.trials), by_optuna(SPACES[name], seed, arguments.trials))
            for seed in range(arguments.seeds)
        ]
        ours, theirs = (np.array(one) for one in zip(*found, strict=True))
        ours_s, theirs_s = np.median(ours[:, 1]), np.median(theirs[:, 1])
        ratio = geometric_mean(np.log((ours[:, 0] + LEAST_REGRET) / (theirs[:, 0] + LEAST_REGRET)))
        times = f"{ours_s:.2f} s, Optuna's {theirs_s:.2f} s ({theirs_s / ours_s:.1f} x)"
        print(f"{name:9} a proposal {times}; regret divided by Optuna's {ratio}", flush=True)


if __name__ == "__main__":
    main()
