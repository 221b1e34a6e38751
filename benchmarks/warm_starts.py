"""What warm starts are worth: searches that know an earlier experiment, against the same sampler without.

The functions are evaluated in this process, and the proposals are those of the service's search. `--workers` trials run
at the same time, and end in the order in which they began.
The earlier experiment is a search of `--known` trials by `tpe` on another function:

- `similar`: the same one, with its minimum moved by 0.05 of the range of each parameter
- `rescaled`: that one, measured in another unit: its values are times 0.01, less 1,000
- `unrelated`: the squared distance from a random point
- `inverted`: the same one, whose best configurations are the worst
- `mixed`: the last three together, as three earlier experiments

`raw` is Optuna's way: the sampler gets the earlier trials with their values as if they were its own.

Printed is, after 10, 20 and 50 trials, the regret (the best value so far less the known minimum) divided by that
without a warm start: its geometric mean over the seeds with the 95 % bootstrap interval. The same seed draws the same
start-up trials. Below 1 the warm start helps. The last rows are over all problems.

    python -m benchmarks.warm_starts [--seeds 30] [--known 60] [--sampler tpe] [--workers 1]
                                     [--kinds similar inverted] [--problems branin hartmann6 rosenbrock10]
"""

import argparse
import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import TASKS, Point, Task
from benchmarks.priors import point_at
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.space.unit_scale import to_unit
from search.study import Study, StudyView

COUNTS = (10, 20, 50)
PROBLEMS = "branin", "hartmann6", "rosenbrock10"
KINDS = "similar", "rescaled", "unrelated", "inverted", "mixed"
MOVED = 0.05
LEAST_REGRET = 1e-4
RESAMPLES = 2000
OWN, RAW = "Paceline", "raw"
Values = NDArray[np.float64]
Function = Callable[[Point], float]


@dataclass(frozen=True)
class Known:
    """An earlier experiment."""

    name: str
    trials: Sequence[Observation]


def function_of(task: Task, kind: str, seed: int) -> Function:
    """The objective of an earlier experiment, of points of the task."""
    random = np.random.default_rng(seed)
    aside = MOVED * random.choice([-1, 1], len(task.space))
    centre = random.random(len(task.space))
    space = Space.model_validate(task.space)

    def moved(point: Point) -> float:
        return task.curve(point_at(task, np.clip(_units(space, point) + aside, 0, 1)))[-1]

    functions: dict[str, Function] = {
        "similar": moved,
        "unrelated": lambda point: float(((_units(space, point) - centre) ** 2).sum()),
        "inverted": lambda point: -task.curve(point)[-1],
    }
    return functions[kind]


def _units(space: Space, point: Point) -> Values:
    return np.array([to_unit(one, point[name]) for name, one in space.root.items()])  # type: ignore[arg-type]


def known_of(name: str, kind: str, seed: int, count: int) -> list[Known]:
    kinds = KINDS[1:4] if kind == "mixed" else (kind,)
    return [Known(one, known_trials(name, one, seed, count)) for one in kinds]


@cache
def known_trials(name: str, kind: str, seed: int, count: int) -> list[Observation]:
    if kind == "rescaled":
        similar = known_trials(name, "similar", seed, count)
        return [replace(one, values=(0.01 * one.values[0] - 1000,)) for one in similar if one.values]
    return searched(TASKS[name], function_of(TASKS[name], kind, seed), "tpe", 1000 + seed, count)


def searched(
    task: Task,
    function: Function,
    sampler: str,
    seed: int,
    count: int,
    known: Sequence[Observation] = (),
    workers: int = 1,
) -> list[Observation]:
    problem = Problem(Space.model_validate(task.space), ("minimize",), max_trials=count, parallelism=workers)
    spec = SamplerSpec(sampler=sampler, warm_start=tuple({one.experiment for one in known if one.experiment}))
    view, running, ended = StudyView(Study(problem, spec, seed), known), deque[Observation](), list[Observation]()
    for number in range(count + workers - 1):
        running.append(Observation(number, view.propose([], number), "running"))
        view.update([running[-1]])
        if len(running) == workers:
            first = running.popleft()
            ended.append(replace(first, status="completed", values=(function(first.params),)))
            view.update([ended[-1]])
    return ended


def observations(known: Sequence[Known], way: str) -> list[Observation]:
    """As the service gives them to the search."""
    named = [replace(trial, experiment=one.name if way == OWN else None) for one in known for trial in one.trials]
    return [replace(trial, number=-1 - index) for index, trial in enumerate(named)]


def regrets(task: Task, options: argparse.Namespace, seed: int, known: Sequence[Observation] = ()) -> list[float]:
    """After each of the counts of trials."""
    function, count = (lambda point: task.curve(point)[-1]), max(COUNTS)
    trials = searched(task, function, options.sampler, seed, count, known, options.workers)
    values = [one.values[0] if one.values else math.inf for one in trials]
    return [max(min(values[:count]) - task.least, LEAST_REGRET) for count in COUNTS]


def compare(name: str, options: argparse.Namespace) -> dict[tuple[str, str], Values]:
    """The logarithms of the ratios by kind and way: a row for each seed, a column for each of the counts."""
    task, logs = TASKS[name], defaultdict[tuple[str, str], list[Values]](list)
    without = np.log([regrets(task, options, seed) for seed in range(options.seeds)])
    medians = np.exp(np.median(without, axis=0))
    after = "  ".join(f"{one:.3f} after {count}" for one, count in zip(medians, COUNTS, strict=True))
    setting = f"{options.sampler}, {options.workers} workers, {options.seeds} seeds"
    print(f"\n{name}, {setting}; median regret without a warm start {after}", flush=True)
    for kind in options.kinds:
        for seed in range(options.seeds):
            known = known_of(name, kind, seed, options.known)
            for way in options.ways:
                found = regrets(task, options, seed, observations(known, way))
                logs[kind, way].append(np.log(found) - without[seed])
    return {row: np.array(found) for row, found in logs.items()}


def show(logs: dict[tuple[str, str], Values]) -> None:
    for (kind, way), found in logs.items():
        print(f"  {kind:10} {way:9} {ratios(found, COUNTS)}", flush=True)


def ratios(logs: Values, counts: Sequence[int]) -> str:
    """The geometric means of the columns, each after so many trials, with bootstrap intervals over the rows."""
    drawn = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975), axis=0))
    columns = zip(np.exp(logs.mean(axis=0)), low, high, counts, strict=True)
    return "  ".join(f"{one:.2f} ({least:.2f} to {most:.2f}) after {count}" for one, least, most, count in columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--known", type=int, default=60)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--ways", nargs="+", default=(OWN, RAW), choices=(OWN, RAW))
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    options = parser.parse_args()
    whole = defaultdict[tuple[str, str], list[Values]](list)
    for name in options.problems:
        found = compare(name, options)
        show(found)
        for row, logs in found.items():
            whole[row].append(logs)
    if len(options.problems) > 1:
        print("\nall problems")
        show({row: np.concatenate(logs) for row, logs in whole.items()})


if __name__ == "__main__":
    main()
