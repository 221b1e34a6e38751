"""What confirmations are worth: the true value of the configuration that a search ends with, at the same budget.

The functions have a known minimum, and each trial observes the value with normal noise. Its standard deviation is a
share (`--noise`) of the distance from the minimum to the median of random points. Without `confirm` all trials are the
search's, and the one with the best observed value is chosen. With it, the last `top * seeds` trials confirm the best
ones, and the best mean is chosen. Both searches of a seed propose and observe the same, as far as both go.

Printed are the median regrets (the true value of the chosen configuration less the minimum), the mean of their paired
differences with its 95 % bootstrap interval, in how many searches the choice was better or worse with `confirm`, and by
how much, on average, the value is too good that is said of the chosen configuration: both in units of the noise.

    python -m benchmarks.confirm [--searches 100] [--samplers tpe random] [--problems branin hartmann6]
                                 [--noise 0.02 0.1 0.5] [--max-trials 32 64] [--top 3] [--seeds 3]
"""

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import TASKS, Point, Task
from search.analysis.confirmation import Confirmed, ranked
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

PROBLEMS = "branin", "hartmann6"
POINTS = 1000
RESAMPLES = 2000
Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """The true regret of a chosen configuration, and the regret that its observations claim."""

    regret: float
    claimed: float


@dataclass(frozen=True)
class Noisy:
    """A task whose values are observed with noise, which (seed, stream, number) decides."""

    task: Task
    deviation: float

    def true(self, point: Point) -> float:
        return self.task.curve(point)[-1]

    def observe(self, point: Point, *stream: int) -> float:
        return self.true(point) + float(np.random.default_rng(stream).normal(0, self.deviation))


def noisy(task: Task, share: float) -> Noisy:
    random = np.random.default_rng(0)
    parameters = task.space.items()
    points = [{name: random.uniform(one["low"], one["high"]) for name, one in parameters} for _ in range(POINTS)]
    return Noisy(task, share * (float(np.median([task.curve(point)[-1] for point in points])) - task.least))


def searched(noisy: Noisy, sampler: str, seed: int, count: int) -> list[tuple[Point, float]]:
    """The configurations and their observed values. A smaller count has the same ones at the beginning."""
    problem = Problem(Space.model_validate(noisy.task.space), ("minimize",))
    view, found = StudyView(Study(problem, SamplerSpec(sampler=sampler), seed)), []
    for number in range(count):
        params = view.propose([], number)
        value = noisy.observe(params, seed, 0, number)
        view.update([Observation(number, params, "completed", (value,))])
        found.append((params, value))
    return found


def best_observed(noisy: Noisy, found: list[tuple[Point, float]]) -> Chosen:
    params, value = min(found, key=lambda one: one[1])
    return Chosen(noisy.true(params) - noisy.task.least, value - noisy.task.least)


def best_confirmed(noisy: Noisy, found: list[tuple[Point, float]], seed: int, top: int, seeds: int) -> Chosen:
    numbers = sorted(range(len(found)), key=lambda number: found[number][1])[:top]

    def confirmed(number: int) -> Confirmed:
        params, value = found[number]
        return Confirmed(number, value, tuple(noisy.observe(params, seed, 1, number, one) for one in range(seeds)))

    first = ranked([confirmed(number) for number in numbers], "minimize")[0]
    least = noisy.task.least
    return Chosen(noisy.true(found[first.number][0]) - least, (first.mean or 0) - least)


def compare(name: str, sampler: str, share: float, max_trials: int, options: argparse.Namespace) -> None:
    problem = noisy(TASKS[name], share)
    kept, without, confirmed = options.top * options.seeds, [], []
    for seed in range(options.searches):
        found = searched(problem, sampler, seed, max_trials)
        without.append(best_observed(problem, found))
        confirmed.append(best_confirmed(problem, found[: max_trials - kept], seed, options.top, options.seeds))
    figures = _figures(without, confirmed, problem.deviation)
    print(f"{name:10} {sampler:7} noise {share:<5g} {max_trials:3} trials: {figures}", flush=True)


def _figures(without: list[Chosen], confirmed: list[Chosen], deviation: float) -> str:
    before, after = (np.array([one.regret for one in chosen]) / deviation for chosen in (without, confirmed))
    differences = after - before
    low, high = _interval(differences)
    better, worse = int((differences < 0).sum()), int((differences > 0).sum())
    biases = [np.mean([one.regret - one.claimed for one in chosen]) / deviation for chosen in (without, confirmed)]
    return (
        f"median regret {np.median(before):.2f} -> {np.median(after):.2f}; difference {differences.mean():+.2f} "
        f"({low:+.2f} to {high:+.2f}); better {better}, worse {worse}; too good by {biases[0]:.2f} -> {biases[1]:.2f}"
    )


def _interval(differences: Figures) -> tuple[float, float]:
    random = np.random.default_rng(0)
    drawn = random.integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--samplers", nargs="+", default=["tpe", "random"])
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.1, 0.5])
    parser.add_argument("--max-trials", nargs="+", type=int, default=[32, 64])
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.problems:
        for sampler in options.samplers:
            for share in options.noise:
                for max_trials in options.max_trials:
                    compare(name, sampler, share, max_trials, options)


if __name__ == "__main__":
    main()
