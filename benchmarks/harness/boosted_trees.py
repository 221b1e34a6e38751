"""Trains the tables `cancer` and `friedman` of benchmarks/harness/curves: gradient boosting, six trees a step.

With a low rate trees learn slowly and end well, so many curves cross. Each configuration is trained three times, with
other random parts of the examples and features. A file is as those of `curve_trainings`.

- `cancer`: cross-entropy on the breast cancer data, after 120 examples; rises again with a high rate.
- `friedman`: squared error on Friedman's first function (Friedman, 1991), after 200 examples with much noise, relative
  to the variance.

    python -m benchmarks.harness.boosted_trees [TABLE ...]
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, make_friedman1
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from benchmarks.harness.curve_tables import stored
from benchmarks.harness.problems import STEPS

SEEDS, TREES, CAP = 3, 6, 5.0
GRIDS: dict[str, tuple[float, ...]] = {
    "rate": (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8),
    "depth": (1, 2, 3, 4, 6),
    "subsample": (0.3, 0.6, 1.0),
    "leaf": (1, 5, 20),
    "features": (0.3, 1.0),
}
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """The first `training` ones are trained with, the next `validation` ones give the curves, the rest the tests."""

    inputs: Values
    targets: NDArray[Any]
    training: int
    validation: int

    def parts(self) -> Iterator[tuple[Values, NDArray[Any]]]:
        ends = self.training, self.training + self.validation
        yield from zip(np.split(self.inputs, ends), np.split(self.targets, ends), strict=True)


def _cancer() -> Examples:
    inputs, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))
    return Examples(inputs[order], labels[order], 120, 220)


def _friedman() -> Examples:
    inputs, outputs = make_friedman1(1000, 10, noise=2.0, random_state=0)
    known = outputs[:200]
    return Examples(inputs, (outputs - known.mean()) / known.std(), 200, 300)


def _entropies(model: Any, inputs: Values, labels: NDArray[Any]) -> list[float]:
    """After each tree."""
    stages = model.staged_predict_proba(inputs)
    return [float(-np.log(np.clip(one[np.arange(len(labels)), labels], 1e-7, 1)).mean()) for one in stages]


def _squares(model: Any, inputs: Values, outputs: NDArray[Any]) -> list[float]:
    """After each tree."""
    return [float(((one - outputs) ** 2).mean()) for one in model.staged_predict(inputs)]


@dataclass(frozen=True)
class Recipe:
    examples: Callable[[], Examples]
    model: Callable[..., Any]
    errors: Callable[[Any, Values, NDArray[Any]], list[float]]


RECIPES = {
    "cancer": Recipe(_cancer, GradientBoostingClassifier, _entropies),
    "friedman": Recipe(_friedman, GradientBoostingRegressor, _squares),
}


def train(recipe: Recipe) -> tuple[Values, Values]:
    """The curves by the configuration's number in the grid, training and step, and the test values without the step."""
    configurations = list(product(*GRIDS.values()))
    shape = len(configurations), SEEDS
    curves, tests = np.empty((*shape, STEPS)), np.empty(shape)
    training, validation, test = recipe.examples().parts()
    for at, (rate, depth, subsample, leaf, features) in enumerate(configurations):
        for seed in range(SEEDS):
            model = recipe.model(
                learning_rate=rate,
                max_depth=depth,
                subsample=subsample,
                min_samples_leaf=leaf,
                max_features=features,
                n_estimators=TREES * STEPS,
                random_state=seed,
            ).fit(*training)
            curves[at, seed] = recipe.errors(model, *validation)[TREES - 1 :: TREES]
            tests[at, seed] = recipe.errors(model, *test)[-1]
    return curves, tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(RECIPES), metavar="TABLE")
    for name in parser.parse_args().tables:
        began = time.process_time()
        curves, tests = (one.clip(max=CAP) for one in train(RECIPES[name]))
        stored(name, GRIDS, curves, tests)
        print(f"{name}: {len(tests)} configurations, {time.process_time() - began:.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main()
