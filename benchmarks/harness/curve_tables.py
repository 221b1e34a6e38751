"""Tables of real learning curves as problems.

benchmarks/harness/curve_trainings.py has trained networks, benchmarks/harness/boosted_trees.py gradient-boosted trees.

A hyperparameter is an integer, its place among the values that were trained, in their order: all samplers treat it as a
number, none proposes what was not trained, and the values, mostly geometric, need no scale. A search sees the
validation curves of one of the three trainings of each configuration. Its winner is scored by the mean test value of
the other two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import Curve, Point, Task

FOLDER = Path(__file__).with_name("curves")
TRAINED = "schedule", "few_labels", "diabetes", "image", "denoising", "cancer", "friedman"
_GRID = "grid "

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class CurveTable:
    """`curves` by the place on each of the `grids`, the training and the step; `tests` has no steps."""

    grids: Mapping[str, Values]
    curves: Values
    tests: Values

    def task(self, training: int) -> Task:
        """The search sees the curves of this training. A step takes the same time for all configurations."""
        scores = np.delete(self.tests, training, axis=-1).mean(axis=-1)

        def curve(point: Point) -> Curve:
            return [float(value) for value in self.curves[self._places(point)][training]]

        def score(point: Point) -> Curve:
            return [float(scores[self._places(point)])]

        space = {name: {"type": "int", "low": 0, "high": len(grid) - 1} for name, grid in self.grids.items()}
        return Task(space, curve, float(scores.min()), steps=self.curves.shape[-1], noiseless=score)

    def _places(self, point: Point) -> tuple[int, ...]:
        return tuple(point[name] for name in self.grids)


def stored(name: str, grids: Mapping[str, tuple[float, ...]], curves: Values, tests: Values) -> None:
    """Store the table; the first axis of `curves` and `tests` goes through the product of the grids."""
    places = tuple(map(len, grids.values()))
    arrays: dict[str, Any] = {f"{_GRID}{hyperparameter}": np.array(grid) for hyperparameter, grid in grids.items()}
    for key, values in (("curves", curves), ("tests", tests)):
        arrays[key] = values.reshape(*places, *values.shape[1:]).astype(np.float16)
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


@cache
def curve_table(name: str) -> CurveTable:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        grids = {key.removeprefix(_GRID): file[key] for key in file.files if key.startswith(_GRID)}
        return CurveTable(grids, file["curves"].astype(np.float64), file["tests"].astype(np.float64))


def trained_task(name: str, seed: int) -> Task:
    """The seed of a search chooses the training that it sees."""
    table = curve_table(name)
    return table.task(seed % table.tests.shape[-1])
