"""What searches find by noisy measurements: Paceline's `gp` and `auto` beside Optuna's GPSampler.

Each value has normal noise of 0, 0.3 and 1 times the spread of the function. Printed are the medians of two true
regrets: that of the winner, whose measured value is the best, and the mean of the trials in the second half. Each is
divided by that of Optuna's GPSampler with the same seed: the geometric mean with its 95 % bootstrap interval. Above 1
the searcher is worse. At the end are those over all functions, by the noise. With `--workers 4` a proposal lacks the
values of three trials.

    python -m benchmarks.noise [--problems branin bowl hartmann network] [--noises 0 0.3 1] [--trials 40]
                               [--seeds 12] [--first-seed 100] [--workers 1] [--searchers "optuna gp" "paceline gp" …]
"""

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import GPSampler

from benchmarks.harness.problems import branin, floats, hartmann
from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import Losses, Params, SequentialTask, by_optuna, by_paceline
from benchmarks.local_optima import LEAST_OF_HARTMANN, TASKS

PEER = "optuna gp"
LEAST_REGRET = 1e-4
"""Smaller ones are equal."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Function:
    """Its values are regrets. `spread` is about their standard deviation over the space."""

    space: dict[str, Any]
    regret: Callable[[Params], float | None]
    spread: float


def bowl(params: Params) -> float:
    centres, weights = np.array([0.3, 0.7, 0.45, 0.6]), np.array([4, 2, 1, 0.3])
    return float(weights @ (np.array([params[f"x{index}"] for index in range(4)]) - centres) ** 2)


FUNCTIONS = {
    "branin": Function(floats(2, 0, 1), lambda params: branin(dict(params))[0] - 0.397887, 50),
    "bowl": Function(floats(4, 0, 1), bowl, 0.6),
    "hartmann": Function(floats(6, 0, 1), lambda params: hartmann(dict(params))[0] - LEAST_OF_HARTMANN, 0.4),
    "network": Function(TASKS["network"].space, TASKS["network"].loss, 0.2),
}


SEARCHERS: Mapping[str, Callable[..., Losses]] = {
    PEER: partial(by_optuna, GPSampler),
    "paceline gp": partial(by_paceline, "gp"),
    "paceline auto": partial(by_paceline, "auto"),
}


def regrets_of(searcher: str, name: str, noise: float, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """The regret of the winner, and the mean of the second half."""
    function, chance, found = FUNCTIONS[name], np.random.default_rng((seed, 1)), list[float]()

    def measured(params: Params) -> float:
        regret = function.regret(params)
        found.append(math.inf if regret is None else regret)
        return found[-1] + noise * function.spread * float(chance.standard_normal())

    task = SequentialTask(function.space, measured)
    values = SEARCHERS[searcher](task, seed, options.trials, workers=options.workers)
    winner = int(np.argmin(np.array(values, dtype=float)))
    return found[winner], float(np.mean(found[options.trials // 2 :]))


def report(name: str, noise: float, options: argparse.Namespace) -> dict[str, Values]:
    """The logarithms of the ratios by searcher, with a row for each seed."""
    print(f"\n{name}, noise {noise:g}", flush=True)
    found, ratios = dict[str, Values](), dict[str, Values]()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for searcher in options.searchers:
        rows = [regrets_of(searcher, name, noise, seed, options) for seed in seeds]
        found[searcher] = np.maximum(np.array(rows), LEAST_REGRET)
        if searcher != PEER and PEER in found:
            ratios[searcher] = np.log(found[searcher] / found[PEER])
        winner, half = np.median(found[searcher], axis=0)
        print(
            f"  {searcher:13} winner {winner:.4f}, second half {half:.4f}   {_shown(ratios.get(searcher))}", flush=True
        )
    return ratios


def _shown(ratios: Values | None) -> str:
    if ratios is None:
        return ""
    return f"{geometric_mean(ratios[:, 0])}; {geometric_mean(ratios[:, 1])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=FUNCTIONS, default=[*FUNCTIONS])
    parser.add_argument("--noises", nargs="+", type=float, default=[0.0, 0.3, 1.0])
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=[*SEARCHERS])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    of_all = defaultdict[tuple[float, str], list[Values]](list)
    for name in options.problems:
        for noise in options.noises:
            for searcher, ratios in report(name, noise, options).items():
                of_all[noise, searcher].append(ratios)
    print("\nall functions")
    for (noise, searcher), each in sorted(of_all.items()):
        print(f"  noise {noise:<4g} {searcher:13} {_shown(np.concatenate(each))}")


if __name__ == "__main__":
    main()
