"""How a search should start: how many draws before the model, and random ones or those of a Sobol sequence.

The functions are evaluated in this process; `--workers` trials run at the same time and end in turn. The settings:

- `10 random`: what Optuna does, and Paceline with `tpe`
- `4 random`, `6 random`, `8 random`
- `10 qmc`: the points of a scrambled Sobol sequence instead
- `by size, random` and `by size, qmc`: three draws for each parameter, at most a quarter of the budget, at least four

Printed is, after a half and all of the budget, the regret (the best value so far less the known minimum) divided by
that of `10 random`: its geometric mean over the seeds with the 95 % bootstrap interval. Below 1 the setting is better.

    python -m benchmarks.start_up [--seeds 30] [--trials 50] [--workers 1] [--sampler tpe]
                                  [--problems branin hartmann6 rosenbrock10] [--settings "4 random" ...]
"""

import argparse
import math
from collections import deque

import numpy as np

from benchmarks.harness.problems import TASKS, Task
from benchmarks.warm_starts import LEAST_REGRET, PROBLEMS, Values, ratios
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

TODAY = "10 random"
SETTINGS = "4 random", "6 random", "8 random", "10 qmc", "by size, random", "by size, qmc"
SHARES = (0.5, 1.0)


def startup_count(setting: str, parameters: int, trials: int) -> int:
    if setting.startswith("by size"):
        return max(4, min(3 * parameters, trials // 4))
    return int(setting.split(maxsplit=1)[0])


def regrets(task: Task, setting: str, seed: int, options: argparse.Namespace) -> list[float]:
    """After each of the shares of the budget."""
    problem = Problem(Space.model_validate(task.space), ("minimize",), parallelism=options.workers)
    count = startup_count(setting, len(task.space), options.trials)
    sampler = SamplerSpec(sampler=options.sampler, options={"n_startup_trials": count})
    view = StudyView(Study(problem, sampler, seed))
    points = StudyView(Study(problem, SamplerSpec(sampler="qmc", options={"scramble": True}), seed))
    running, best = deque[Observation](), [math.inf]
    for number in range(options.trials):
        begins = setting.endswith("qmc") and view.source(number) == "start_up"
        running.append(Observation(number, (points if begins else view).propose([], number), "running"))
        view.update([running[-1]])
        while running and (len(running) == options.workers or number == options.trials - 1):
            one = running.popleft()
            value = task.curve(one.params)[-1]
            view.update([Observation(one.number, one.params, "completed", (value,))])
            best.append(min(best[-1], value))
    return [max(best[round(share * options.trials)] - task.least, LEAST_REGRET) for share in SHARES]


def compare(name: str, options: argparse.Namespace) -> dict[str, Values]:
    """The logarithms of the ratios by setting: a row for each seed, a column for each of the shares."""
    task, seeds = TASKS[name], range(options.seeds)
    today = np.log([regrets(task, TODAY, seed, options) for seed in seeds])
    medians = " and ".join(f"{one:.3f}" for one in np.exp(np.median(today, axis=0)))
    print(f"\n{name}, {options.sampler}, {options.workers} workers; median regret of {TODAY} {medians}", flush=True)
    settings = options.settings
    return {setting: np.log([regrets(task, setting, seed, options) for seed in seeds]) - today for setting in settings}


def show(logs: dict[str, Values], trials: int) -> None:
    for setting, found in logs.items():
        print(f"  {setting:16} {ratios(found, [round(share * trials) for share in SHARES])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sampler", default="tpe", choices=["tpe", "gp"])
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--settings", nargs="+", default=SETTINGS, choices=SETTINGS)
    options = parser.parse_args()
    found = {}
    for name in options.problems:
        found[name] = compare(name, options)
        show(found[name], options.trials)
    print("\nall problems")
    show({one: np.concatenate([logs[one] for logs in found.values()]) for one in options.settings}, options.trials)


if __name__ == "__main__":
    main()
