"""What searches find in tables of real trainings, beside Optuna's samplers: 15 problems that no sampler was made with.

The tables are those of `benchmarks.harness.training_tables`: networks on tabular data with five numeric parameters
(HPOBench), networks for regression with numbers and choices (HPOlib), and the operations of an image classifier, all
choices (NAS-Bench-201). A trial's value is that of one of the seeds that its configuration was trained with, the same
for all searches with the same seed and number. The regret is the mean over all seeds of the configuration with the best
value so far, less the least mean in the table, as a share of that of the table's median configuration.

Printed are the medians of the regrets after each of the numbers of trials, and HERE's regret divided by that of another
searcher with the same seed, for each family and for all: the geometric mean with its 95 % bootstrap interval over the
seeds, since the first draws of a seed are the same in all tables of a family. Below 1 HERE is better. The file keeps
what has been run, one JSON object a line: `run` appends what it lacks.

    python -m benchmarks.tables run FILE [--tables "hpobench car" ...] [--searchers "optuna gp" ...] [--seeds 10]
                                         [--first-seed 0] [--trials 60] [--workers 1]
    python -m benchmarks.tables report FILE [--here "paceline auto"] [--trials 60] [--workers 1]
"""

import argparse
import json
import warnings
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import Params, SequentialTask, by_optuna, by_paceline
from benchmarks.harness.training_tables import NAMES, TrainingTable, table

HERE = "paceline auto"
SHOWN = 10, 20, 40, 60
LEAST_REGRET = 1e-3
"""Smaller ones are equal."""

SEARCHERS = {
    HERE: partial(by_paceline, "auto"),
    "paceline gp": partial(by_paceline, "gp"),
    "paceline tpe": partial(by_paceline, "tpe"),
    "optuna gp": partial(by_optuna, optuna.samplers.GPSampler),
    "optuna tpe": partial(by_optuna, optuna.samplers.TPESampler),
    "random": partial(by_optuna, optuna.samplers.RandomSampler),
}

Regrets = NDArray[np.float64]


def regrets(name: str, searcher: str, seed: int, trials: int, workers: int) -> list[float]:
    """After each trial, in the order in which they were proposed."""
    trained, chance = table(name), np.random.default_rng(seed)
    chosen, means = chance.integers(2**30, size=trials), list[float]()

    def loss(params: Params) -> float:
        by_seed = trained.of(params)
        means.append(float(by_seed.mean()))
        return float(by_seed[chosen[len(means) - 1] % len(by_seed)])

    losses = SEARCHERS[searcher](SequentialTask(dict(trained.space), loss), seed, trials, workers=workers)
    return _of_best(np.array(losses, dtype=float), means, trained)


def _of_best(losses: Regrets, means: list[float], trained: TrainingTable) -> list[float]:
    best = [int(np.argmin(losses[: count + 1])) for count in range(len(losses))]
    unit = trained.median - trained.least
    return [(means[index] - trained.least) / unit for index in best]


def run(options: argparse.Namespace) -> None:
    done = {_key(one) for one in _stored(options.file)}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for seed, name, searcher in product(seeds, options.tables, options.searchers):
        case = {"table": name, "searcher": searcher, "seed": seed} | _setting(options)
        if _key(case) not in done:
            found = regrets(name, searcher, seed, options.trials, options.workers)
            with options.file.open("a") as file:
                file.write(json.dumps({**case, "regrets": found}) + "\n")


def _stored(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _key(case: dict[str, Any]) -> tuple[Any, ...]:
    return case["table"], case["searcher"], case["seed"], case["workers"], case["trials"]


def _setting(options: argparse.Namespace) -> dict[str, int]:
    return {"workers": options.workers, "trials": options.trials}


def report(options: argparse.Namespace) -> None:
    found: dict[str, dict[str, dict[int, Regrets]]] = defaultdict(lambda: defaultdict(dict))
    for one in _stored(options.file):
        if one.items() >= _setting(options).items():
            found[one["table"]][one["searcher"]][one["seed"]] = np.array(one["regrets"])
    logs: dict[tuple[str, str], dict[int, list[Regrets]]] = defaultdict(lambda: defaultdict(list))
    for name, by_searcher in found.items():
        print(f"\n{name}: medians after {', '.join(map(str, SHOWN))} trials", flush=True)
        own = by_searcher[options.here]
        for searcher, there in by_searcher.items():
            medians = np.median([_shown(one) for one in there.values()], axis=0)
            print(f"  {searcher:14} {' '.join(f'{median:7.3f}' for median in medians)}   {len(there)} seeds")
            for seed in own.keys() & there.keys() if searcher != options.here else ():
                ratio = np.log(
                    np.maximum(_shown(own[seed]), LEAST_REGRET) / np.maximum(_shown(there[seed]), LEAST_REGRET)
                )
                for family in (name.split(" ")[0], "all"):
                    logs[family, searcher][seed].append(ratio)
    print(f"\n{options.here} divided by")
    for (family, searcher), by_seed in sorted(logs.items()):
        rows = np.array([np.mean(rows, axis=0) for rows in by_seed.values()])
        shown = "  ".join(geometric_mean(column).ljust(20) for column in rows.T)
        print(f"  {searcher:14} {family:12} {shown}  {len(rows)} seeds")


def _shown(course: Regrets) -> Regrets:
    return np.maximum(course[[count - 1 for count in SHOWN if count <= len(course)]], LEAST_REGRET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=[*SEARCHERS])
    parser.add_argument("--here", choices=SEARCHERS, default=HERE)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=max(SHOWN))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    run(options) if options.command == "run" else report(options)


if __name__ == "__main__":
    main()
