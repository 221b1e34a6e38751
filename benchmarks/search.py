"""How good a search is: the best value by Paceline, plain Optuna and Ray Tune's OptunaSearch with the same budget.

One trial after the other, on functions whose least value is known. All use TPE as they come. Printed are the median
over the seeds of what is left to the least value, and its quartiles. Ten seeds tell little: medians of the very same
search differ by half.

    python -m benchmarks.search [--trials 60] [--seeds 40] [--problems branin hartmann6 rosenbrock10]
"""

import argparse
import importlib.util
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import optuna

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space import Space
from search.study import StudyView

Point = dict[str, float]
Function = Callable[[Point], float]


@dataclass(frozen=True)
class Task:
    """To be minimized; `bounds` are those of each parameter, searched by logarithm if `log`."""

    bounds: dict[str, tuple[float, float]]
    least: float
    function: Function
    log: bool = False


def branin(point: Point) -> float:
    x, y = point["x0"], point["x1"]
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


_HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_WIDTHS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(point: Point) -> float:
    x = np.array([point[f"x{index}"] for index in range(6)])
    return float(-_HEIGHTS @ np.exp(-(_WIDTHS * (x - _CENTRES) ** 2).sum(axis=1)))


def rosenbrock(point: Point) -> float:
    x = [point[f"x{index}"] for index in range(10)]
    return sum(100 * (after - one**2) ** 2 + (1 - one) ** 2 for one, after in pairwise(x))


TASKS = {
    "branin": Task({"x0": (-5, 10), "x1": (0, 15)}, 0.397887, branin),
    "hartmann6": Task({f"x{index}": (0, 1) for index in range(6)}, -3.32237, hartmann),
    "rosenbrock10": Task({f"x{index}": (0.01, 10) for index in range(10)}, 0.0, rosenbrock, log=True),
}


def by_paceline(task: Task, trials: int, seed: int) -> float:
    parameters = {
        name: {"type": "float", "low": low, "high": high, "log": task.log} for name, (low, high) in task.bounds.items()
    }
    view = StudyView(Problem(Space.model_validate(parameters), ("minimize",), SamplerSpec(seed=seed), seed))
    best = math.inf
    for number in range(trials):
        params: Any = view.propose([], number)
        value = task.function(params)
        view.update([Observation(number, params, "completed", (value,), 1, value)])
        best = min(best, value)
    return best


def by_optuna(task: Task, trials: int, seed: int) -> float:
    def objective(trial: optuna.Trial) -> float:
        return task.function(
            {name: trial.suggest_float(name, low, high, log=task.log) for name, (low, high) in task.bounds.items()}
        )

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    return study.best_value


def by_ray_tune(task: Task, trials: int, seed: int) -> float:
    from ray import tune  # noqa: PLC0415 (left out where it is not installed)
    from ray.tune.search.optuna import OptunaSearch  # noqa: PLC0415

    draw = tune.loguniform if task.log else tune.uniform
    space = {name: draw(low, high) for name, (low, high) in task.bounds.items()}
    search = OptunaSearch(metric="value", mode="min", seed=seed)
    search.set_search_properties("value", "min", space)
    best = math.inf
    for number in range(trials):
        value = task.function(search.suggest(str(number)))
        search.on_trial_complete(str(number), {"value": value, "training_iteration": 1})
        best = min(best, value)
    return best


def compare(name: str, trials: int, seeds: int) -> None:
    task = TASKS[name]
    print(f"\n{name}, {trials} trials, {seeds} seeds: what is left to the least value")
    searches = {"Paceline": by_paceline, "Optuna": by_optuna}
    if importlib.util.find_spec("ray.tune") is not None:
        searches["Ray Tune's OptunaSearch"] = by_ray_tune
    for searcher, search in searches.items():
        left = [search(task, trials, seed) - task.least for seed in range(seeds)]
        low, median, high = np.quantile(left, [0.25, 0.5, 0.75])
        print(f"  {searcher:<26} median {median:9.4f}   quartiles {low:9.4f} to {high:9.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--problems", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    for name in options.problems:
        compare(name, options.trials, options.seeds)


if __name__ == "__main__":
    main()
