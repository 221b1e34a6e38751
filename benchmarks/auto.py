"""What `search: auto` is worth: against samplers and stopping rules that are picked by hand, on simulated workers.

The problems, the simulated time and its budget are those of `benchmarks.search`; all settings run over HTTP, and their
reports have checkpoints unless `--without-checkpoints` is given. `auto` does not know how many steps a training has:
the first ones run to their ends. Rules that are picked by hand know it. A start costs `--start` simulated seconds,
but the service measures its own clock, by which a start takes next to nothing.

Printed is the best value, less the known minimum, after a quarter, a half and all of the budget: its median over the
seeds, and the regret of `auto` divided by that of the setting, as the geometric mean over the seeds with its 95 %
bootstrap interval. Below 1, `auto` is better.

    python -m benchmarks.auto [--problems curves misleading ...] [--seeds 10] [--trials 60] [--start 0] [--workers 4]
                              [--settings tpe "tpe, hyperband"] [--without-checkpoints]
"""

import argparse
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.problems import TASKS, Task, prepared
from benchmarks.harness.search_port import MIN_STEP, REDUCTION_FACTOR
from benchmarks.harness.searchers import trials_of_paceline
from benchmarks.harness.simulation import simulate, whole_seconds
from benchmarks.search import LEAST_REGRET, SHARES, Regrets, paceline

AUTO = "auto"
MORE_THAN_NEEDED = 3
"""A budget in time is no number of trials: `limits.max_trials` is so many times `--trials`, which is not reached."""


def settings(task: Task) -> dict[str, dict[str, Any]]:
    """The settings by name: `search` and `early_stopping` of a spec."""
    tpe, gp = {"sampler": "tpe"}, {"sampler": "gp"}
    picked: dict[str, dict[str, Any]] = {AUTO: {}, "tpe": {"search": tpe}, "gp": {"search": gp}}
    if task.steps > 1:
        halving = {"min_step": MIN_STEP, "reduction_factor": REDUCTION_FACTOR, "max_step": task.steps}
        promoting = halving | {"promote": True, "extra_count": 1}
        rules: dict[str, dict[str, Any]] = {
            "median": {"rule": "median"},
            "asha": {"rule": "asha", **halving},
            "hyperband": {"rule": "hyperband", **halving},
            "asha promoting": {"rule": "asha", **promoting},
            "hyperband promoting": {"rule": "hyperband", **promoting},
        }
        picked |= {f"tpe, {name}": {"search": tpe, "early_stopping": rule} for name, rule in rules.items()}
    return picked


def regrets(http: httpx.Client, name: str, setting: str, options: argparse.Namespace) -> Regrets:
    task = prepared(name)
    by_time = task.steps > 1
    budget = options.trials / 3 * whole_seconds(task) / options.workers if by_time else options.trials
    found = []
    for seed in range(options.seeds):
        trials = trials_of_paceline(http, task, _parts(task, name, setting, seed, options), saves=options.checkpoints)
        limit = {"seconds": budget} if by_time else {"trials": budget}
        course = simulate(task, trials, start=options.start if by_time else 0, workers=options.workers, **limit)
        after = course.after_seconds if by_time else course.after_trials
        found.append([after(share * budget) - task.least for share in SHARES])
    return np.array(found)


def _parts(task: Task, name: str, setting: str, seed: int, options: argparse.Namespace) -> Mapping[str, Any]:
    parts = settings(task)[setting]
    search = parts.get("search", {"sampler": AUTO}) | {"seed": seed}
    rule = parts.get("early_stopping", {"rule": AUTO if setting == AUTO else "none"})
    max_trials = options.trials * (MORE_THAN_NEEDED if task.steps > 1 else 1)
    return {
        "name": "-".join((name, setting.replace(", ", "-").replace(" ", "-"), str(seed))),
        "search": search,
        "early_stopping": rule,
        "limits": {"max_trials": max_trials, "parallelism": options.workers},
    }


def show(setting: str, own: Regrets, auto: Regrets) -> None:
    columns = []
    for share, there, here in zip(SHARES, own.T, auto.T, strict=True):
        ratio = "" if setting == AUTO else f", {_ratio(here, there)}"
        columns.append(f"{share:4.0%}: {np.median(there):7.4f}{ratio}")
    print(f"  {setting:<25} {'   '.join(columns)}", flush=True)


def _ratio(auto: NDArray[np.float64], own: NDArray[np.float64]) -> str:
    both = np.isfinite(auto) & np.isfinite(own)
    logs = np.log(np.maximum(auto[both], LEAST_REGRET) / np.maximum(own[both], LEAST_REGRET))
    if not len(logs):
        return "no trial has completed"
    chance = np.random.default_rng(0)
    low, high = np.exp(np.quantile([chance.choice(logs, len(logs)).mean() for _ in range(5000)], [0.025, 0.975]))
    return f"{np.exp(logs.mean()):.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--settings", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--start", type=float, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--without-checkpoints", dest="checkpoints", action="store_false")
    options = parser.parse_args()
    with paceline() as http:
        for name in options.problems:
            print(f"\n{name}, {options.seeds} seeds", flush=True)
            auto = regrets(http, name, AUTO, options)
            for setting in settings(prepared(name)):
                if setting == AUTO or options.settings is None or setting in options.settings:
                    own = auto if setting == AUTO else regrets(http, name, setting, options)
                    show(setting, own, auto)


if __name__ == "__main__":
    main()
