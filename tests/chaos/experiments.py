"""The experiments of a run, and how each of them must end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOSS = {"metric": "loss", "direction": "minimize"}
X = {"type": "float", "low": 0.0, "high": 1.0}
BREAKS_WHEN_X = 0.5
EXTERNAL_TAG = "runs:by-client"


@dataclass(frozen=True)
class Expected:
    """How an experiment must end: the reason, the number of trials, and the x of those that must fail.

    `trial_count` is None for an experiment that a user steers: its trials may also be stopped.
    """

    end_reason: str
    trial_count: int | None
    broken_x: float | None = None


@dataclass(frozen=True)
class Planned:
    spec: Mapping[str, Any]
    expected: Expected


def pace(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """TPE with ASHA, two workers and checkpoints: the most common kind."""
    spec = _spec(name, journal, steps=12, pause=0.25, save_every=3) | {
        "space": {
            "x": X,
            "width": {"type": "int", "low": 1, "high": 8},
            "shape": {"type": "categorical", "choices": ["straight", "bent"]},
            "bend": {"type": "float", "low": 0.1, "high": 2.0, "log": True, "when": {"shape": "bent"}},
        },
        "search": {"sampler": "tpe", "seed": seed},
        "early_stopping": {"rule": "asha", "min_step": 4, "reduction_factor": 2},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "step_metric": "step",
    }
    spec["trainer"] |= {"scaling": {"num_workers": 2}}
    return Planned(spec, Expected("max_trials", trials))


def drift(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """Random search without early stopping, many reports, whose steps the service counts, on one worker or two."""
    spec = _spec(name, journal, steps=60, pause=0.06, save_every=15) | {
        "space": {"x": X, "width": {"type": "int", "low": 1, "high": 8}},
        "search": {"sampler": "random", "seed": seed},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "checkpoints": {"keep": 2},
    }
    spec["trainer"] |= {"scaling": {"num_workers": [1, 2], "elastic_resize_monitor_interval_s": 2}}
    return Planned(spec, Expected("max_trials", trials))


def grid(name: str, journal: str, *, seed: int, widths: int) -> Planned:
    """A grid, which ends when it is exhausted, with configurations for which the user's code raises."""
    spec = _spec(name, journal, steps=8, pause=0.2, save_every=2) | {
        "space": {
            "x": {"type": "categorical", "choices": [0.1, BREAKS_WHEN_X]},
            "width": {"type": "int", "low": 1, "high": widths},
        },
        "search": {"sampler": "grid", "seed": seed},
        "limits": {"max_trials": 100, "parallelism": 1},
        "step_metric": "step",
    }
    spec["config"] |= {"breaks_at": 3, "breaks_when_x": BREAKS_WHEN_X}
    return Planned(spec, Expected("space_exhausted", 2 * widths, BREAKS_WHEN_X))


def climb(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """ASHA with promotion: trials pause at a rung, and some of them continue later from their checkpoint."""
    spec = _spec(name, journal, steps=8, pause=0.2, save_every=2) | {
        "space": {"x": X, "width": {"type": "int", "low": 1, "high": 8}},
        "search": {"sampler": "random", "seed": seed},
        "early_stopping": {"rule": "asha", "min_step": 2, "reduction_factor": 2, "max_step": 8, "promote": True},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "step_metric": "step",
    }
    return Planned(spec, Expected("max_trials", trials))


def population(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """Population-based training: more members than run at once, some of which continue from another's checkpoint."""
    spec = _spec(name, journal, steps=12, pause=0.2, save_every=2) | {
        "space": {"x": X, "bend": {"type": "float", "low": 0.1, "high": 2.0, "log": True}},
        "search": {"sampler": "random", "seed": seed},
        "early_stopping": {"rule": "pbt", "interval": 4, "max_step": 12},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "step_metric": "step",
    }
    return Planned(spec, Expected("max_trials", trials))


def fresh(name: str, journal: str, *, seed: int, trials: int) -> Planned:
    """New worker processes for every trial, through Ray Train's public `fit()`."""
    spec = _spec(name, journal, steps=6, pause=0.3, save_every=2) | {
        "space": {"x": X},
        "search": {"sampler": "random", "seed": seed},
        "limits": {"max_trials": trials, "parallelism": 1},
        "step_metric": "step",
    }
    spec["trainer"] |= {"reuse_workers": False}
    return Planned(spec, Expected("max_trials", trials))


def command(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """A program that prints its metrics, and saves into a directory. Its steps take longer than to read a line."""
    spec = _spec(name, journal, steps=10, pause=0.4, save_every=2) | {
        "space": {"x": X, "width": {"type": "int", "low": 1, "high": 8}},
        "search": {"sampler": "random", "seed": seed},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "step_metric": "step",
    }
    del spec["trainer"]["entrypoint"]
    spec["trainer"] |= {
        "kind": "command",
        "command": ["python", "program.py"],
        "metrics": {"stdout": [r"step=(?P<step>\d+) loss=(?P<loss>\S+) made=(?P<made>\S+)"]},
    }
    return Planned(spec, Expected("max_trials", trials))


def external(name: str, journal: str, *, seed: int, trials: int, parallelism: int) -> Planned:
    """Trials that a user's own program runs over HTTP, without Ray."""
    spec = _spec(name, journal, steps=16, pause=0.2, save_every=100) | {
        "space": {"x": X, "width": {"type": "int", "low": 1, "high": 8}},
        "search": {"sampler": "tpe", "seed": seed},
        "early_stopping": {"rule": "asha", "min_step": 4, "reduction_factor": 2},
        "limits": {"max_trials": trials, "parallelism": parallelism},
        "step_metric": "step",
        "tags": dict([EXTERNAL_TAG.split(":")]),
        "trainer": {"kind": "external"},
    }
    return Planned(spec, Expected("max_trials", trials))


def steered(name: str, journal: str, *, seed: int) -> Planned:
    """An experiment for a user's calls. It does not end before the user lowers its limit."""
    spec = _spec(name, journal, steps=10, pause=0.4, save_every=2) | {
        "space": {"x": X, "width": {"type": "int", "low": 1, "high": 8}},
        "search": {"sampler": "random", "seed": seed},
        "limits": {"max_trials": 100, "parallelism": 1},
        "step_metric": "step",
        "tags": {"turn": "0"},
    }
    return Planned(spec, Expected("max_trials", None))


def scratch(name: str, journal: str, *, seed: int) -> Planned:
    """An experiment that its user cancels and deletes."""
    spec = _spec(name, journal, steps=1000, pause=0.4, save_every=2) | {
        "space": {"x": X},
        "search": {"sampler": "random", "seed": seed},
        "limits": {"max_trials": 1, "parallelism": 1},
        "step_metric": "step",
    }
    return Planned(spec, Expected("user", None))


def _spec(name: str, journal: str, *, steps: int, pause: float, save_every: int) -> dict[str, Any]:
    return {
        "name": name,
        "config": {"steps": steps, "pause": pause, "save_every": save_every, "journal": journal},
        "objectives": [LOSS],
        "trainer": {
            "kind": "torch",
            "entrypoint": "training:train_fn",
            "scaling": {"num_workers": 1},
            "env": {"OMP_NUM_THREADS": "1"},
        },
    }
