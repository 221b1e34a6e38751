"""The quality of searches: Paceline, plain Optuna and Ray Tune's OptunaSearch with ASHA on the same problems.

Trials are simulated: `--workers` report known curves step by step. Paceline is called over HTTP; Optuna's study and
pruner, and Ray Tune's searcher and scheduler, are called directly. All use TPE with default options. Where a trial has
more than one step, they use successive halving with the same rungs: in one bracket (`asha`), and in several brackets
with different lowest rungs (`hyperband`), for curves whose first steps mislead. Paceline also runs both with
`promote`, which the others lack: a trial that is not among the best at a rung (the rule's share plus one trial) pauses
there and may resume later, which costs another start.

Printed is the best value, less the known minimum, after a quarter, a half and all of the budget: the median over the
seeds with its quartiles, and the number of runs, each from a start to an end or a pause; then by how much the others
are behind Paceline at the end, with the 95 % bootstrap interval of the mean difference. With `--scores` Paceline runs
alone, with the curve score and without, and printed is the geometric mean of the ratios of the two regrets. The budget
is a number of trials, or simulated seconds where trials are stopped early: with `--trials 60` those of 20 full
trainings. `--start` adds the cost of starting a trial for each of the three (see `turnaround`). With `--pace 0.1` each
step, and so the budget, takes a tenth of the problem's time.

    python -m benchmarks.search [--trials 60] [--seeds 10] [--problems branin curves ...]
                                [--rules asha hyperband] [--start 0.15 0 16] [--pace 1]
                                [--scores] [--sampler tpe] [--workers 4]
"""

import argparse
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import optuna
from numpy.typing import NDArray

from benchmarks.harness.problems import TASKS, prepared
from benchmarks.harness.search_port import Search
from benchmarks.harness.searchers import search_with_optuna, search_with_paceline, search_with_ray_tune
from benchmarks.harness.simulation import BestCurve, simulate, slowed, whole_seconds
from benchmarks.recovery import Paceline, until_served
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

RULES = "asha", "hyperband"
PACELINE, PROMOTING = "Paceline", "Paceline promoting"
SHARES = (0.25, 0.5, 1.0)
LEAST_REGRET = 1e-4
"""Smaller ones are equal: their ratios say nothing."""
Regrets = NDArray[np.float64]
"""A row for each seed, a column for each of the shares of the time."""


@contextmanager
def paceline() -> Iterator[httpx.Client]:
    with tempfile.TemporaryDirectory(prefix="paceline-search-") as home:
        url = f"sqlite:///{home}/paceline.db"
        database = Database(url)
        upgrade(database)
        database.close()
        service = Paceline(url, Path(home))
        service.process.start()
        try:
            until_served(service.ready, time.perf_counter())
            yield service.http
        finally:
            service.process.kill()


def compare(name: str, http: httpx.Client, options: argparse.Namespace) -> None:
    task = slowed(prepared(name), options.pace)
    by_time = task.steps > 1
    ours, optuna_start, ray_tune_start = options.start
    own = partial(search_with_paceline, http, name, workers=options.workers)
    searches: dict[str, tuple[Search, float]] = {PACELINE: (own, ours)}
    if by_time:
        searches[PROMOTING] = partial(own, promote=True), ours
    searches["Optuna"] = search_with_optuna, optuna_start
    if importlib.util.find_spec("ray.tune") is not None:
        searches["Ray Tune"] = search_with_ray_tune, ray_tune_start
    seconds = options.trials / 3 * whole_seconds(task) / options.workers
    limit = {"seconds": seconds} if by_time else {"trials": options.trials}
    print(f"\n{name}: {'after simulated seconds' if by_time else 'after trials'}, {options.seeds} seeds", flush=True)
    ends: dict[tuple[str, str | None], list[float]] = {}
    for rule in options.rules if by_time else [None]:
        for searcher, (search, start) in searches.items():
            begun = start if by_time else 0
            courses = [
                simulate(task, search(task, rule, seed), start=begun, workers=options.workers, **limit)
                for seed in range(options.seeds)
            ]
            ends[searcher, rule] = _show(_shown(searcher, rule), courses, task.least, *limit.items())
    for key, found in ends.items():
        if key[0] in (PACELINE, PROMOTING):
            others = {_shown(*other): there for other, there in ends.items() if other[0] not in (PACELINE, PROMOTING)}
            _show_differences(_shown(*key), found, others)


def compare_scores(name: str, http: httpx.Client, options: argparse.Namespace) -> None:
    """Paceline with the curve score and without, on the same seeds."""
    task = slowed(prepared(name), options.pace)
    seconds = options.trials / 3 * whole_seconds(task) / options.workers
    for rule in options.rules:
        regrets = {
            scored: np.array(
                [
                    [course.after_seconds(share * seconds) - task.least for share in SHARES]
                    for seed in range(options.seeds)
                    for course in [
                        simulate(
                            task,
                            search_with_paceline(
                                http, name, task, rule, seed,
                                workers=options.workers, sampler=options.sampler, curve_score=scored,
                            ),
                            seconds=seconds, start=options.start[0], workers=options.workers,
                        )
                    ]
                ]
            )
            for scored in (True, False)
        }  # fmt: skip
        _show_ratios(f"{name}, {options.sampler}, {rule}, {options.workers} workers", regrets[True], regrets[False])


def _show_ratios(what: str, scored: Regrets, plain: Regrets) -> None:
    chance = np.random.default_rng(0)
    print(what, flush=True)
    for share, with_score, without in zip(SHARES, scored.T, plain.T, strict=True):
        both = np.isfinite(with_score) & np.isfinite(without)
        logs = np.log(np.maximum(with_score[both], LEAST_REGRET) / np.maximum(without[both], LEAST_REGRET))
        if not len(logs):
            print(f"  {share:4.0%} of the time: no trial has completed", flush=True)
            continue
        low, high = np.exp(np.quantile([chance.choice(logs, len(logs)).mean() for _ in range(5000)], [0.025, 0.975]))
        medians = f"{np.median(with_score[both]):.4f} with, {np.median(without[both]):.4f} without the curve score"
        ratio = f"ratio {np.exp(logs.mean()):.2f} ({low:.2f} to {high:.2f})"
        print(f"  {share:4.0%} of the time: {medians}; {ratio}, {len(logs)} seeds", flush=True)


def _shown(searcher: str, rule: str | None) -> str:
    return f"{searcher}, {rule}" if rule else searcher


def _show(searcher: str, courses: Sequence[BestCurve], least: float, limit: tuple[str, float]) -> list[float]:
    """Print one row; return the values at the end."""
    kind, budget = limit
    columns, found = [], list[float]()
    for share in SHARES:
        after = "after_seconds" if kind == "seconds" else "after_trials"
        found = [getattr(course, after)(share * budget) - least for course in courses]
        low, median, high = np.quantile(found, [0.25, 0.5, 0.75], method="inverted_cdf")
        columns.append(f"{share * budget:6.0f}: {median:8.4f} ({low:.4f} to {high:.4f})")
    runs = np.median([len(course.best) - 1 for course in courses])
    print(f"  {searcher:<29} {'   '.join(columns)}   {runs:.0f} runs", flush=True)
    return found


def _show_differences(ours: str, found: Sequence[float], others: Mapping[str, Sequence[float]]) -> None:
    chance = np.random.default_rng(0)
    for other, there in others.items():
        behind = np.array(there) - np.array(found)
        means = [chance.choice(behind, len(behind)).mean() for _ in range(5000)]
        low, high = np.quantile(means, [0.025, 0.975])
        word = "better" if high < 0 else "worse" if low > 0 else "no different"
        print(f"  {other} is behind by {behind.mean():.4f} ({low:.4f} to {high:.4f}): {word} than {ours}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--start", type=float, nargs=3, default=[0, 0, 0], metavar="SECONDS")
    parser.add_argument("--pace", type=float, default=1)
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    with paceline() as http:
        for name in options.problems:
            (compare_scores if options.scores else compare)(name, http, options)


if __name__ == "__main__":
    main()
