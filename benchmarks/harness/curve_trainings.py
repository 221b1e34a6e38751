"""Trains the tables of learning curves in benchmarks/harness/curves: small networks on data that scikit-learn bundles.

Each table is a whole grid of at least four hyperparameters. Each configuration is trained three times, with other first
weights, order of the examples, dropout and noise. A file has the values of each hyperparameter, the validation value
after each of 27 steps and the test value after the last one, with half precision. A value that is not a number, or
above the table's cap, is the cap.

- `schedule`: error rate on digits, by SGD with momentum, after examples of which a fifth have a wrong label; the rate
  falls along a cosine to 0 at step `horizon`, so that a short schedule is ahead until late.
- `few_labels`: cross-entropy on digits after 120 labels, relative to that of equal shares; it rises again without
  dropout and decay.
- `diabetes`: squared error of a regression from 160 patients, relative to the variance; noisy.
- `image`: squared error on held-out pixels of a photograph, of networks with sines that map a place to its brightness.
- `denoising`: squared error of autoencoders that remove noise from digits, some with more of it added in training.

    python -m benchmarks.harness.curve_trainings [TABLE ...]
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import log, prod

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits, load_sample_image
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.harness.curve_tables import FOLDER, stored
from benchmarks.harness.network_stacks import Data, Stack, Training
from benchmarks.harness.problems import STEPS

SEEDS = 3
Grids = Mapping[str, tuple[float, ...]]
Values = Mapping[str, float]


@dataclass(frozen=True)
class Recipe:
    """`sizes` are the layers' sizes by the values of `shape`, the hyperparameters that networks of a stack share."""

    grids: Grids
    shape: tuple[str, ...]
    sizes: Callable[[Values], tuple[int, ...]]
    data: Callable[[], Data]
    training: Training
    cap: float


def _split(inputs: Tensor, targets: Tensor, training: int, validation: int) -> Data:
    """Split at random, the same way each time; the rest is test data."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    parts = order.tensor_split((training, training + validation))
    return Data(*((inputs[part], targets[part]) for part in parts))


def _digits(training: int) -> Data:
    pixels, digits = load_digits(return_X_y=True)
    return _split(torch.tensor(pixels / 8 - 1, dtype=torch.float32), torch.tensor(digits), training, 600)


def _digits_with_wrong_labels() -> Data:
    right, chance = _digits(500), torch.Generator().manual_seed(1)
    inputs, labels = right.training
    is_wrong = torch.rand(len(labels), generator=chance) < 0.2
    others = (labels + torch.randint(1, 10, labels.shape, generator=chance)) % 10
    return replace(right, training=(inputs, torch.where(is_wrong, others, labels)))


def _diabetes() -> Data:
    features, progress = load_diabetes(return_X_y=True)
    inputs, targets = (
        torch.tensor((one - one.mean(0)) / one.std(0), dtype=torch.float32) for one in (features, progress)
    )
    return _split(inputs, targets[:, None], 160, 141)


def _image() -> Data:
    """A part of the photograph, in shades of grey, at a quarter of its resolution."""
    part = load_sample_image("china.jpg")[60:188, 220:348].mean(axis=2).reshape(32, 4, 32, 4).mean(axis=(1, 3))
    places = torch.cartesian_prod(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32))
    brightness = torch.tensor((part - part.mean()) / part.std(), dtype=torch.float32).reshape(-1, 1)
    return _split(places, brightness, 500, 262)


def _noisy_digits() -> Data:
    clean = _digits(500)
    chance = torch.Generator().manual_seed(1)
    return Data(*(_with_noise(one, chance) for one in (clean.training[0], clean.validation[0], clean.test[0])))


def _with_noise(clean: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    return clean + 0.5 * torch.randn(clean.shape, generator=chance), clean


def _entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    classes = targets.expand(len(outputs), -1)
    return cross_entropy(outputs.movedim(2, 1), classes, reduction="none").mean(dim=1) / log(outputs.shape[2])


def _errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The shares of wrong answers; a network whose outputs are not numbers answers by chance."""
    wrong = (outputs.argmax(dim=2) != targets).float().mean(dim=1)
    return torch.where(outputs.isfinite().all(dim=2).all(dim=1), wrong, 0.9)


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared errors relative to the targets' variance."""
    return (outputs - targets).square().mean(dim=(1, 2)) / targets.var()


RECIPES = {
    "schedule": Recipe(
        {
            "rate": (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6),
            "momentum": (0.0, 0.7, 0.9, 0.97),
            "horizon": (3, 9, 18, 27, 81),
            "width": (6, 12, 24, 48),
        },
        ("width",),
        lambda one: (64, int(one["width"]), 10),
        _digits_with_wrong_labels,
        Training(_entropies, _errors, torch.relu, batch=25, updates=20, steps=STEPS, adam=False),
        cap=0.9,
    ),
    "few_labels": Recipe(
        {
            "rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
            "dropout": (0.0, 0.2, 0.4, 0.6),
            "decay": (0.001, 0.03, 0.3, 3.0),
            "depth": (1, 2, 3),
            "width": (12, 32),
        },
        ("depth", "width"),
        lambda one: (64, *[int(one["width"])] * int(one["depth"]), 10),
        lambda: _digits(120),
        Training(_entropies, _entropies, torch.relu, batch=40, updates=12, steps=STEPS),
        cap=5,
    ),
    "diabetes": Recipe(
        {
            "rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
            "decay": (0.001, 0.03, 0.3, 3.0),
            "noise": (0.0, 0.25, 0.5, 1.0),
            "depth": (1, 2),
            "width": (8, 24, 64),
        },
        ("depth", "width"),
        lambda one: (10, *[int(one["width"])] * int(one["depth"]), 1),
        _diabetes,
        Training(_squares, _squares, torch.tanh, batch=80, updates=10, steps=STEPS),
        cap=10,
    ),
    "image": Recipe(
        {
            "scale": (0.5, 1, 2, 4, 8, 16, 32),
            "rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
            "depth": (1, 2, 3),
            "width": (8, 16, 24, 32),
        },
        ("depth", "width"),
        lambda one: (2, *[int(one["width"])] * int(one["depth"]), 1),
        _image,
        Training(_squares, _squares, torch.sin, batch=125, updates=15, steps=STEPS),
        cap=10,
    ),
    "denoising": Recipe(
        {
            "rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
            "noise": (0.0, 0.15, 0.3, 0.6, 1.2),
            "bottleneck": (2, 4, 8, 16, 32),
            "width": (8, 16, 32),
        },
        ("bottleneck", "width"),
        lambda one: (64, int(one["width"]), int(one["bottleneck"]), int(one["width"]), 64),
        _noisy_digits,
        Training(_squares, _squares, torch.tanh, batch=50, updates=10, steps=STEPS),
        cap=5,
    ),
}


def train(recipe: Recipe) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The curves by the configuration's number in the grid, training and step, and the test values without the step."""
    values = [dict(zip(recipe.grids, one, strict=True)) for one in product(*recipe.grids.values())]
    shape = prod(map(len, recipe.grids.values())), SEEDS
    curves, tests = np.empty((*shape, STEPS), np.float32), np.empty(shape, np.float32)
    for of_shape in product(*(recipe.grids[name] for name in recipe.shape)):
        members = [at for at, one in enumerate(values) if tuple(one[name] for name in recipe.shape) == of_shape]
        settings = {name: torch.tensor([values[at][name] for at in members]) for name in recipe.grids}
        for seed in range(SEEDS):
            stack = Stack(recipe.sizes(values[members[0]]), settings, recipe.training, seed)
            curves[members, seed], tests[members, seed] = (one.numpy() for one in stack.curves(recipe.data()))
    return curves, tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(RECIPES), metavar="TABLE")
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in parser.parse_args().tables:
        began, recipe = time.process_time(), RECIPES[name]
        curves, tests = (np.nan_to_num(one, nan=recipe.cap).clip(max=recipe.cap) for one in train(recipe))
        stored(name, recipe.grids, curves, tests)
        print(f"{name}: {len(tests)} configurations, {time.process_time() - began:.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main()
