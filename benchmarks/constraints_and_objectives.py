"""How good the best is that a small budget finds under a constraint, or with two objectives, and where trials diverge.

The problems have a loss and a size, and both should be small: with one objective the size has a limit, with two it is
the second one. Of the last two a part of the space diverges: then a trial reports no number. Optuna fails it, and its
samplers ignore it. `network` is a made-up training, whose best learning rates are beside those that diverge, the more
so the wider it is; `branin` diverges above a curve close to one of its minima. `kursawe`, `zdt3`, `poloni` and `branin`
were looked at only after the search was made.

Printed are medians of how many trials diverged, and of what the search lacks at the end: with a constraint the regret
of its best feasible trial, as a share of the difference between the median and the least feasible loss of a grid; with
two objectives the share of the grid's hypervolume that is missing. Then what it lacks, divided by what Paceline's `gp`
lacks with the same seed: the geometric mean with its 95 % bootstrap interval. Above 1 the other one is worse.

    python -m benchmarks.constraints_and_objectives [--problems zdt1 currin kursawe zdt3 poloni network branin]
                        [--objectives 1 2] [--trials 60] [--seeds 8]
                        [--searchers "paceline gp" "paceline tpe" "optuna gp" "optuna tpe" "optuna nsga2" random]
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import optuna

from benchmarks.harness import problems
from benchmarks.harness.ratios import geometric_mean
from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView

Point = Mapping[str, float]
GRID_POINTS = 300_000
LEAST = 1e-4
"""Of what a search lacks: less is shown as this much, since the grid is not finer."""
HERE = "paceline gp"
SEARCHERS = HERE, "paceline tpe", "optuna gp", "optuna tpe", "optuna nsga2", "random"


@dataclass(frozen=True)
class Outcome:
    """Less is better of both. `size` is above `Training.limit` in a trial that violates the constraint."""

    loss: float
    size: float


@dataclass(frozen=True)
class Training:
    """`outcome` returns None where a trial diverges. All parameters are floats from 0 to 1."""

    names: Sequence[str]
    limit: float
    outcome: Callable[[Point], Outcome | None]

    @property
    def space(self) -> Space:
        return Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in self.names})

    def grid(self) -> Iterator[Outcome]:
        levels = np.linspace(0, 1, round(GRID_POINTS ** (1 / len(self.names)))).tolist()
        for values in product(levels, repeat=len(self.names)):
            outcome = self.outcome(dict(zip(self.names, values, strict=True)))
            if outcome is not None:
                yield outcome


def zdt1(point: Point) -> Outcome:
    """Zitzler, Deb and Thiele, 2000, as `zdt3`."""
    first, *others = (point[name] for name in sorted(point))
    rest = 1 + 9 * sum(others) / len(others)
    return Outcome(first, rest * (1 - math.sqrt(first / rest)))


def zdt3(point: Point) -> Outcome:
    first, *others = (point[name] for name in sorted(point))
    rest = 1 + 9 * sum(others) / len(others)
    return Outcome(first, rest * (1 - math.sqrt(first / rest) - first / rest * math.sin(10 * math.pi * first)))


def currin(point: Point) -> Outcome:
    """Branin, and the function of Currin et al., 1988."""
    x, y = point["x"], point["y"]
    factor = 1 - math.exp(-1 / (2 * y)) if y > 0 else 1
    above, below = 2300 * x**3 + 1900 * x**2 + 2092 * x + 60, 100 * x**3 + 500 * x**2 + 4 * x + 20
    return Outcome(_branin(point), factor * above / below)


def kursawe(point: Point) -> Outcome:
    """Kursawe, 1991."""
    values = [10 * point[name] - 5 for name in sorted(point)]
    waves = sum(-10 * math.exp(-0.2 * math.hypot(one, other)) for one, other in pairwise(values))
    return Outcome(waves, sum(abs(one) ** 0.8 + 5 * math.sin(one**3) for one in values))


def poloni(point: Point) -> Outcome:
    """Poloni et al., 1997."""
    x, y = (math.pi * (2 * point[name] - 1) for name in ("x", "y"))

    def parts(x: float, y: float) -> tuple[float, float]:
        first = 0.5 * math.sin(x) - 2 * math.cos(x) + math.sin(y) - 1.5 * math.cos(y)
        return first, 1.5 * math.sin(x) - math.cos(x) + 2 * math.sin(y) - 0.5 * math.cos(y)

    best = parts(1, 2)
    loss = 1 + sum((one - other) ** 2 for one, other in zip(best, parts(x, y), strict=True))
    return Outcome(loss, (x + 3) ** 2 + (y + 1) ** 2)


def network(point: Point) -> Outcome | None:
    rate, width = -5 + 5 * point["rate"], (3 + 6 * point["width"]) / 9
    edge = -1.2 - 1.3 * width
    if rate > edge:
        return None
    decay, dropout = 5 * point["decay"] - 3, 0.6 * point["dropout"] - 0.2
    loss = 0.1 + 0.15 * (rate - edge + 0.15) ** 2 + 0.6 * (1 - width) ** 2 + 0.05 * decay**2 + 0.3 * dropout**2
    return Outcome(loss, 2 ** (9 * width - 9))


def branin(point: Point) -> Outcome | None:
    x, y = 15 * point["x"] - 5, 15 * point["y"]
    if y > 3.2 + 0.08 * (x - 9) ** 2:
        return None
    return Outcome(_branin(point), point["x"])


def _branin(point: Point) -> float:
    return problems.branin({"x0": point["x"], "x1": point["y"]})[-1]


TRAININGS = {
    "zdt1": Training(("a", "b", "c", "d"), 1, zdt1),
    "currin": Training(("x", "y"), 6, currin),
    "kursawe": Training(("a", "b", "c"), -5, kursawe),
    "zdt3": Training(("a", "b", "c", "d"), 0.5, zdt3),
    "poloni": Training(("x", "y"), 10, poloni),
    "network": Training(("decay", "dropout", "rate", "width"), 0.5, network),
    "branin": Training(("x", "y"), 0.7, branin),
}


class PacelineSearch:
    def __init__(self, training: Training, objectives: int, seed: int, sampler: str, trials: int) -> None:
        self._training, self._objectives, self._number = training, objectives, 0
        minimize: Direction = "minimize"
        problem = Problem(training.space, (minimize,) * objectives, constrained=objectives == 1, max_trials=trials)
        self._view = StudyView(Study(problem, SamplerSpec(sampler=sampler), seed))

    def step(self) -> Outcome | None:
        params = self._view.propose([], self._number)
        outcome = self._training.outcome({name: float(str(value)) for name, value in params.items()})
        self._view.update([self._observation(outcome, params)])
        self._number += 1
        return outcome

    def _observation(self, outcome: Outcome | None, params: Params) -> Observation:
        if outcome is None:
            return Observation(self._number, params, "diverged")
        values = (outcome.loss, outcome.size)[: self._objectives]
        violation = (outcome.size - self._training.limit,) if self._objectives == 1 else None
        return Observation(self._number, params, "completed", values, constraints=violation)


class OptunaSearch:
    def __init__(self, training: Training, objectives: int, sampler: optuna.samplers.BaseSampler) -> None:
        self._training, self._objectives = training, objectives
        self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)

    def step(self) -> Outcome | None:
        trial = self._study.ask()
        outcome = self._training.outcome({name: trial.suggest_float(name, 0, 1) for name in self._training.names})
        if outcome is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return None
        if self._objectives == 1:
            trial.set_constraint("size", outcome.size - self._training.limit)
        self._study.tell(trial, (outcome.loss, outcome.size)[: self._objectives])
        return outcome


def searched(name: str, training: Training, objectives: int, seed: int, trials: int) -> list[Outcome | None]:
    search = search_by(name, training, objectives, seed, trials)
    return [search.step() for _ in range(trials)]


def search_by(name: str, training: Training, objectives: int, seed: int, trials: int) -> PacelineSearch | OptunaSearch:
    match name.split():
        case ["paceline", sampler]:
            return PacelineSearch(training, objectives, seed, sampler, trials)
        case ["optuna", "gp"]:
            return OptunaSearch(training, objectives, optuna.samplers.GPSampler(seed=seed))
        case ["optuna", "nsga2"]:
            return OptunaSearch(training, objectives, optuna.samplers.NSGAIISampler(seed=seed))
        case ["optuna", "tpe"]:
            return OptunaSearch(training, objectives, optuna.samplers.TPESampler(seed=seed))
        case _:
            return OptunaSearch(training, objectives, optuna.samplers.RandomSampler(seed=seed))


class Scale:
    """What a search can reach at most, by a grid."""

    def __init__(self, training: Training, objectives: int) -> None:
        self._limit, self._objectives = training.limit, objectives
        grid = list(training.grid())
        losses = np.array([one.loss for one in grid if objectives > 1 or one.size <= training.limit])
        self._least, self._middle = float(losses.min()), float(np.median(losses))
        self._largest = max(one.size for one in grid)
        self._volume = self._hypervolume(grid)

    def lack(self, found: Sequence[Outcome]) -> float:
        """From LEAST to 1."""
        if self._objectives > 1:
            return max(1 - self._hypervolume(found) / self._volume, LEAST)
        best = min((one.loss for one in found if one.size <= self._limit), default=math.inf)
        return min(max((best - self._least) / (self._middle - self._least), LEAST), 1)

    def _hypervolume(self, outcomes: Iterable[Outcome]) -> float:
        """Up to the median loss and the largest size."""
        area, smallest = 0.0, self._largest
        for one in sorted(outcomes, key=lambda one: (one.loss, one.size)):
            if one.loss < self._middle and one.size < smallest:
                area += (self._middle - one.loss) * (smallest - one.size)
                smallest = one.size
        return area


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=TRAININGS, default=[*TRAININGS])
    parser.add_argument("--objectives", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument("--searchers", nargs="+", default=SEARCHERS)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=8)
    arguments = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    for name, objectives in product(arguments.problems, arguments.objectives):
        print(f"\n{name}, {'a constraint' if objectives == 1 else 'two objectives'}, {arguments.trials} trials")
        compare(TRAININGS[name], objectives, arguments.searchers, arguments.seeds, arguments.trials)


def compare(training: Training, objectives: int, searchers: Sequence[str], seeds: int, trials: int) -> None:
    scale, ours = Scale(training, objectives), np.ones(seeds)
    for name in searchers:
        found = [searched(name, training, objectives, seed, trials) for seed in range(seeds)]
        lacks = np.array([scale.lack([one for one in outcomes if one]) for outcomes in found])
        ours = lacks if name == HERE else ours
        diverged = np.median([outcomes.count(None) for outcomes in found])
        ratio = geometric_mean(np.log(lacks / ours))
        print(f"  {name:12}  diverged {diverged:4.0f}  lacks {np.median(lacks):.4f}  {ratio}", flush=True)


if __name__ == "__main__":
    main()
