"""What priors are worth: searches with a good, an off-centre and a wrong prior, against the same sampler without.

The functions are evaluated in this process, one trial at a time, and the proposals are those of the service's search.
A good prior is the best of 1,000 random points, which the seed decides, and a wrong one the worst of them. An
off-centre one is the good one moved by 0.2 of the range of each parameter. All have the confidence `--confidence`.

Printed is, after 10, 20 and 50 trials, the ratio of the medians of the regrets (the best value so far less the known
minimum) with priors and without, with its 95 % bootstrap interval over the seeds; below 1 the priors help.

    python -m benchmarks.priors [--seeds 20] [--samplers tpe random] [--problems branin hartmann6 rosenbrock10]
                                [--confidence medium]
"""

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import TASKS, Point, Task
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

COUNTS = (10, 20, 50)
PROBLEMS = "branin", "hartmann6", "rosenbrock10"
POINTS = 1000
OFF_CENTRE = 0.2
RESAMPLES = 2000
KINDS = "good", "off-centre", "wrong"
Shares = NDArray[np.float64]


def point_at(task: Task, shares: Shares) -> Point:
    def value(low: float, high: float, share: float, *, log: bool) -> float:
        return float(low * (high / low) ** share if log else low + share * (high - low))

    parameters = zip(task.space.items(), shares, strict=True)
    return {name: value(one["low"], one["high"], share, log=one["log"]) for (name, one), share in parameters}


def believed(task: Task, kind: str, seed: int) -> Point:
    """The values of the priors."""
    random = np.random.default_rng(seed)
    points = random.random((POINTS, len(task.space)))
    values = [task.curve(point_at(task, point))[-1] for point in points]
    if kind == "wrong":
        return point_at(task, points[np.argmax(values)])
    aside = OFF_CENTRE * random.choice([-1, 1], len(task.space)) if kind == "off-centre" else 0
    return point_at(task, np.clip(points[np.argmin(values)] + aside, 0, 1))


def regrets(task: Task, sampler: str, seed: int, priors: dict[str, Any]) -> list[float]:
    """After each of the counts of trials."""
    space = Space.model_validate({name: {**one, "prior": priors.get(name)} for name, one in task.space.items()})
    problem = Problem(space, ("minimize",), max_trials=max(COUNTS))
    view, best, found = StudyView(Study(problem, SamplerSpec(sampler=sampler), seed)), math.inf, []
    for number in range(max(COUNTS)):
        params = view.propose([], number)
        value = task.curve(params)[-1]
        view.update([Observation(number, params, "completed", (value,))])
        best = min(best, value)
        found += [best - task.least] if number + 1 in COUNTS else []
    return found


def compare(name: str, sampler: str, options: argparse.Namespace) -> None:
    task, seeds = TASKS[name], range(options.seeds)
    without = np.array([regrets(task, sampler, seed, {}) for seed in seeds])
    medians = "  ".join(
        f"{one:.3f} after {count}" for one, count in zip(np.median(without, axis=0), COUNTS, strict=True)
    )
    print(f"\n{name}, {sampler}, {options.seeds} seeds; regret without priors {medians}", flush=True)
    for kind in KINDS:
        runs = []
        for seed in seeds:
            values = believed(task, kind, seed).items()
            priors = {one: {"value": value, "confidence": options.confidence} for one, value in values}
            runs.append(regrets(task, sampler, seed, priors))
        print(f"  {kind:12} {_ratios(np.array(runs), without)}", flush=True)


def _ratios(found: Shares, without: Shares) -> str:
    """The ratios of the medians, with their bootstrap intervals over the seeds."""
    random = np.random.default_rng(0)
    drawn = random.integers(len(found), size=(RESAMPLES, len(found)))
    ratio = np.median(found, axis=0) / np.median(without, axis=0)
    low, high = np.quantile(np.median(found[drawn], axis=1) / np.median(without[drawn], axis=1), (0.025, 0.975), axis=0)
    columns = zip(ratio, low, high, COUNTS, strict=True)
    return "  ".join(f"{one:.2f} ({least:.2f} to {most:.2f}) after {count}" for one, least, most, count in columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--samplers", nargs="+", default=["tpe", "random"])
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--confidence", default="medium", choices=["low", "medium", "high"])
    options = parser.parse_args()
    for name in options.problems:
        for sampler in options.samplers:
            compare(name, sampler, options)


if __name__ == "__main__":
    main()
