"""What a search with three objectives or more finds in a small budget, and how long its proposals take.

From the volume that a search dominates follows what it lacks: the share of what all searches of the problem
dominate together. Printed are the medians of that and of a proposal's processor time in the second half of a search,
and what a search lacks divided by what Paceline's `gp` lacks with the same seed: the geometric mean with its 95 %
bootstrap interval. Above 1 the other one is worse. `dtlz2` and `training` were looked at when the search was made,
`dtlz7` and `vehicle` only afterwards.

    python -m benchmarks.many_objectives [--problems dtlz2 training dtlz7 vehicle] [--objectives 3] [--trials 40]
                        [--seeds 8] [--searchers "paceline gp" "paceline tpe" "optuna gp" "optuna tpe" "optuna nsga3"]
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from benchmarks.harness.ratios import geometric_mean
from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.conversion import distributions_of
from search.space.space import Space
from search.study import Study, StudyView

HERE = "paceline gp"
WORST, POINTS = 1.2, 300_000
LEAST = 1e-3
"""Of what a search lacks: less is shown as this much."""

Array = NDArray[np.float64]
Losses = Callable[[Array, int], Array]
"""Of parameters from 0 to 1 and a number of objectives."""


def dtlz2(x: Array, count: int) -> Array:
    """Deb, Thiele, Laumanns and Zitzler, Scalable Test Problems for Evolutionary Multiobjective Optimization, 2005."""
    angles, rest = x[: count - 1] * np.pi / 2, 1 + ((x[count - 1 :] - 0.5) ** 2).sum()
    sines = np.append(1.0, np.sin(angles[::-1]))
    return np.array([rest * np.cos(angles[: count - 1 - n]).prod() * sines[n] for n in range(count)])


def dtlz7(x: Array, count: int) -> Array:
    """As `dtlz2`, of which the front has gaps; divided by 10 in the last objective."""
    first, rest = x[: count - 1], 1 + 9 * x[count - 1 :].mean()
    last = rest * (count - (first / rest * (1 + np.sin(3 * np.pi * first))).sum()) / 10
    return np.append(first, last)


def training(x: Array, count: int) -> Array:
    """A made-up training: the loss, the logarithm of the size, the latency, the energy."""
    lr, width, depth, dropout, batch, decay = x
    loss = 0.1 + 0.3 * np.exp(-2.5 * width) + 0.2 * np.exp(-2 * depth) + 1.5 * (lr - 0.6 + 0.2 * depth) ** 2
    loss += 0.3 * (dropout - 0.3 * width) ** 2 + 0.1 * (decay - 0.5) ** 2 + 0.05 * batch
    latency = 0.05 + 0.2 * width + 0.3 * depth**2 + 0.5 * (1 - batch) * width
    return np.array([loss, 0.6 * width + 0.4 * depth, latency, (0.3 + width * depth) * (1.2 - batch)])[:count]


def vehicle(x: Array, count: int) -> Array:
    """Liao and others, Multiobjective optimization for crash safety design of vehicles, 2008; from 0 to about 1 each.

    The mass, the acceleration and the intrusion.
    """
    a, b, c, d, e = 1 + 2 * x[:5]
    mass = 1640.2823 + 2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e
    acceleration = 6.5856 + 1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d - 0.3695 * a * d + 0.0861 * a * e
    acceleration += 0.3628 * b * d - 0.1106 * a**2 - 0.3437 * c**2 + 0.1764 * d**2
    intrusion = -0.0551 + 0.0181 * a + 0.1024 * b + 0.0421 * c - 0.0073 * a * b + 0.024 * b * c - 0.0118 * b * d
    intrusion += -0.0204 * c * d - 0.008 * c * e - 0.0241 * b**2 + 0.0109 * d**2
    return np.array([(mass - 1660) / 45, (acceleration - 6) / 6, (intrusion - 0.03) / 0.25])[:count]


PROBLEMS: dict[str, tuple[Losses, int]] = {
    "dtlz2": (dtlz2, 6),
    "training": (training, 6),
    "dtlz7": (dtlz7, 5),
    "vehicle": (vehicle, 5),
}
"""The losses, and the number of parameters."""

Searched = tuple[Array, float]
"""The losses of all trials, and the median of a proposal's seconds."""


@dataclass(frozen=True)
class Case:
    losses: Losses
    space: Space
    objectives: int
    trials: int

    def losses_of(self, params: Mapping[str, Any]) -> Array:
        return self.losses(np.array([*params.values()], dtype=float), self.objectives)


def by_paceline(sampler: str, case: Case, seed: int) -> Searched:
    minimize: Direction = "minimize"
    problem = Problem(case.space, (minimize,) * case.objectives, max_trials=case.trials)
    view = StudyView(Study(problem, SamplerSpec(sampler=sampler), seed))
    found, seconds = [], []
    for number in range(case.trials):
        began = time.process_time()
        params = view.propose([], number)
        seconds.append(time.process_time() - began)
        found.append(case.losses_of(params))
        view.update([Observation(number, params, "completed", tuple(found[-1].tolist()))])
    return np.array(found), float(np.median(seconds[case.trials // 2 :]))


def by_optuna(make: Callable[..., optuna.samplers.BaseSampler], case: Case, seed: int) -> Searched:
    study = optuna.create_study(directions=["minimize"] * case.objectives, sampler=make(seed=seed))
    distributions = distributions_of(case.space)
    seconds = []
    for _ in range(case.trials):
        began = time.process_time()
        trial = study.ask(distributions)
        seconds.append(time.process_time() - began)
        study.tell(trial, case.losses_of(trial.params).tolist())
    return np.array([trial.values for trial in study.trials]), float(np.median(seconds[case.trials // 2 :]))


SEARCHES: dict[str, Callable[..., Searched]] = {
    HERE: partial(by_paceline, "gp"),
    "paceline tpe": partial(by_paceline, "tpe"),
    "optuna gp": partial(by_optuna, optuna.samplers.GPSampler),
    "optuna tpe": partial(by_optuna, optuna.samplers.TPESampler),
    "optuna nsga3": partial(by_optuna, optuna.samplers.NSGAIIISampler),
}


def volume(losses: Array) -> float:
    """The share of the points between the best of all problems and WORST that a trial dominates, of random ones."""
    points = np.random.default_rng(0).uniform(0, WORST, (POINTS, losses.shape[1]))
    dominated = np.zeros(POINTS, dtype=bool)
    for one in losses:
        dominated |= (points >= one).all(axis=1)
    return float(dominated.mean())


def table(searched: Mapping[str, Sequence[Searched]]) -> Iterator[str]:
    volumes = {name: np.array([volume(losses) for losses, _ in runs]) for name, runs in searched.items()}
    together = volume(np.concatenate([losses for runs in searched.values() for losses, _ in runs]))
    lacks = {name: 1 - found / together for name, found in volumes.items()}
    for name, runs in searched.items():
        ratio = geometric_mean(np.log(np.maximum(lacks[name], LEAST) / np.maximum(lacks[HERE], LEAST)))
        seconds = np.median([one for _, one in runs])
        yield f"  {name:14} lacks {np.median(lacks[name]):.4f}; a proposal {seconds:.2f} s; divided by ours {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS])
    parser.add_argument("--objectives", type=int, default=3)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--searchers", nargs="+", choices=SEARCHES, default=[*SEARCHES])
    arguments = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    for problem in arguments.problems:
        losses, parameters = PROBLEMS[problem]
        space = Space.model_validate({f"x{n}": {"type": "float", "low": 0, "high": 1} for n in range(parameters)})
        case = Case(losses, space, arguments.objectives, arguments.trials)
        print(f"{problem}, {case.objectives} objectives", flush=True)
        searched = {
            name: [SEARCHES[name](case, seed) for seed in range(arguments.seeds)] for name in arguments.searchers
        }
        for line in table(searched):
            print(line, flush=True)


if __name__ == "__main__":
    main()
