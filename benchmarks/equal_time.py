"""Paceline and its peers at equal simulated time: many pairs of searches, kept in a file, and a table of them.

The problems and the simulated workers are those of `benchmarks.search`; `designed` were looked at while the search was
made, `held back` were not. `trained` are tables of real learning curves (benchmarks/harness/curve_tables.py), made
when the search was ready: there the winner is scored by the test values of other trainings than the search saw.

A whole training takes TRAINING seconds on each problem. The budget is the time of 20 of them (`--trainings`), on all
workers together. With `--start 14`, which is what Ray Train was measured to need from trial to trial, a start costs the
peers 14 s and Paceline 0.2 s; the peers' settings pay it again when they resume a trial.

`run` appends the results that the file lacks, so it can be stopped and started again, and settings can be added: one
JSON object a line, with the regret after each twentieth of the time: the value that a repetition of the best trial so
far is expected to have (so without the noise by which it was chosen), less the least one.
`report` prints, for each problem, the median regret at the end, and the regret of `--setting` divided by that of each
other setting with the same seed: the geometric mean with its 95 % bootstrap interval, below 1 where `--setting` is
better; and the time after which the median of `--setting` has reached the peer's median at the end. `syne ...` needs
Syne Tune, which has an environment of its own: it runs there with the same file.

    python -m benchmarks.equal_time run FILE [--settings "optuna tpe, hyperband" ...] [--problems crossing ...]
                                    [--seeds 30] [--workers 4] [--start 0] [--trainings 20]
    python -m benchmarks.equal_time report FILE [--setting "paceline hyperband, promoting"] [--workers 4] [--start 0]
                                       [--trainings 20]
"""

import argparse
import atexit
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.curve_tables import TRAINED, trained_task
from benchmarks.harness.problems import Task, prepared
from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.search_port import Ask
from benchmarks.harness.simulation import simulate, slowed, whole_seconds

DESIGNED = "curves", "mf_hartmann", "misleading", "late", "flat", "diverging"
HELD_BACK = "crossing", "power_law", "plateau", "mf_hartmann_noisy", "digits", "unstable"
TRAINING = 270.0
TRAININGS = 20
OUR_START = 0.2
POINTS = 20
AUTO_TRIALS = 9
"""The budget in trials for each training that `auto` plans with, since a budget in time is none. Three were too few: a
search that stops most trials early had no trial left before the time was over."""
LEAST_REGRET = 1e-3
"""Smaller ones are equal."""
OURS = "paceline"
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Budget:
    """The time of so many `trainings` on all `workers` together; a start costs `start` seconds of it."""

    workers: int
    start: float
    trainings: float = TRAININGS


Make = Callable[[Task, int, Budget], Ask]
"""A search of the task with the seed."""


def _ours(sampler: str, task: Task, seed: int, budget: Budget, **options: Any) -> Ask:
    from benchmarks.harness.local_search import LocalSearch  # noqa: PLC0415 - Syne Tune's environment has no Paceline
    from benchmarks.harness.search_port import MIN_STEP, REDUCTION_FACTOR  # noqa: PLC0415
    from search.early_stopping.rules.hyperband import Hyperband  # noqa: PLC0415

    rule = Hyperband(max_step=task.steps, min_step=MIN_STEP, reduction_factor=REDUCTION_FACTOR, **options)
    return LocalSearch(task, rule, seed, budget.workers, sampler=sampler).ask


@cache
def _service() -> Any:
    """The HTTP client of one service for all searches, which ends with this process."""
    from benchmarks.search import paceline  # noqa: PLC0415 - as above

    running = ExitStack()
    atexit.register(running.close)
    return running.enter_context(paceline())


def _ours_by_http(sampler: str, rule: str, task: Task, seed: int, budget: Budget, *, gives_length: bool = False) -> Ask:
    """The spec does not say how many steps a training has, as those of the peers do, unless it `gives_length`.

    The service's clock sees starts of no time.
    """
    from benchmarks.harness.searchers import trials_of_paceline  # noqa: PLC0415 - as above

    parts = {
        "name": f"{sampler}-{uuid4().hex}",
        "search": {"sampler": sampler, "seed": seed},
        "early_stopping": {"rule": rule} | ({"max_step": task.steps} if gives_length else {}),
        "limits": {"max_trials": int(AUTO_TRIALS * budget.trainings), "parallelism": budget.workers},
    }
    return trials_of_paceline(_service(), task, parts, saves=True)


def _optuna(sampler: str, pruner: str, task: Task, seed: int, _budget: Budget) -> Ask:
    import optuna  # noqa: PLC0415

    from benchmarks.harness.baselines import search_with_study  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    made: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: samplers.TPESampler(seed=seed),
        "gp": lambda: samplers.GPSampler(seed=seed),
        "random": lambda: samplers.RandomSampler(seed=seed),
    }
    return search_with_study(task, made[sampler](), pruner)


def _first_step(task: Task, seed: int, budget: Budget) -> Ask:
    """Half of the time goes to the first steps."""
    from benchmarks.harness.baselines import FirstStepThenBest  # noqa: PLC0415

    step = whole_seconds(task) / task.steps
    count = int(0.5 * budget.trainings * whole_seconds(task) / (step + budget.start))
    return FirstStepThenBest(_optuna("random", "none", task, seed, budget), count).ask


def _ray_tune(rule: str, task: Task, seed: int, _budget: Budget) -> Ask:
    from benchmarks.harness.searchers import search_with_ray_tune  # noqa: PLC0415

    return search_with_ray_tune(task, rule, seed)


def _syne_tune(scheduler: str, task: Task, seed: int, _budget: Budget) -> Ask:
    from benchmarks.harness.syne_tune import search_with_syne_tune  # noqa: PLC0415 - not in Paceline's environment

    return search_with_syne_tune(task, scheduler, seed)


SETTINGS: dict[str, Make] = {
    "paceline auto": partial(_ours_by_http, "auto", "auto"),
    "paceline auto, length given": partial(_ours_by_http, "auto", "auto", gives_length=True),
    "paceline gp": partial(_ours_by_http, "gp", "none"),
    "paceline hyperband": partial(_ours, "tpe"),
    "paceline hyperband, promoting": partial(_ours, "tpe", promote=True, extra_count=1),
    "paceline hyperband, weighted": partial(_ours, "tpe", promote=True, extra_count=1, weighted=True),
    "paceline gp, hyperband, weighted": partial(_ours, "gp", promote=True, extra_count=1, weighted=True),
    "paceline auto, hyperband, weighted": partial(_ours, "auto", promote=True, extra_count=1, weighted=True),
    "optuna tpe, hyperband": partial(_optuna, "tpe", "hyperband"),
    "ray tune, brackets": partial(_ray_tune, "hyperband"),
    "ray tune, asha": partial(_ray_tune, "asha"),
    "optuna tpe, halving": partial(_optuna, "tpe", "halving"),
    "optuna tpe, median": partial(_optuna, "tpe", "median"),
    "optuna tpe": partial(_optuna, "tpe", "none"),
    "random": partial(_optuna, "random", "none"),
    "first step, then best": _first_step,
    "optuna gp": partial(_optuna, "gp", "none"),
    "optuna gp, hyperband": partial(_optuna, "gp", "hyperband"),
    "syne tune asha": partial(_syne_tune, "asha"),
    "syne tune bohb": partial(_syne_tune, "bohb"),
    "syne tune cqr": partial(_syne_tune, "cqr"),
}


def regrets(task: Task, setting: str, seed: int, budget: Budget) -> list[float | None]:
    """After each part of the time; None while no trial has completed."""
    if budget.start and setting.startswith(OURS):
        budget = replace(budget, start=OUR_START)
    seconds = budget.trainings * whole_seconds(task) / budget.workers
    ask = SETTINGS[setting](task, seed, budget)
    course = simulate(task, ask, seconds=seconds, start=budget.start, workers=budget.workers)
    found = [course.expected_after_seconds(seconds * (part + 1) / POINTS) - task.least for part in range(POINTS)]
    return [one if math.isfinite(one) else None for one in found]


def run(options: argparse.Namespace) -> None:
    done, budget = {_key(one) for one in _stored(options.file)}, _budget_of(options)
    for setting, name, seed in product(options.settings, options.problems, range(options.seeds)):
        case = {**asdict(budget), "problem": name, "setting": setting, "seed": seed}
        if _key(case) not in done:
            found = regrets(_task(name, seed), setting, seed, budget)
            with options.file.open("a") as file:
                file.write(json.dumps({**case, "regrets": found}) + "\n")


def _task(name: str, seed: int) -> Task:
    task = trained_task(name, seed) if name in TRAINED else _prepared(name)
    return slowed(task, TRAINING / whole_seconds(task))


_prepared = cache(prepared)


def _stored(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        for line in file.read_text().splitlines():
            yield {"trainings": TRAININGS, **json.loads(line)}


def _key(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["workers"], one["start"], one["trainings"], one["problem"], one["setting"], one["seed"]


def _budget_of(options: argparse.Namespace) -> Budget:
    return Budget(options.workers, options.start, options.trainings)


def report(options: argparse.Namespace) -> None:
    found: dict[str, dict[str, dict[int, Values]]] = defaultdict(lambda: defaultdict(dict))
    for one in _stored(options.file):
        if Budget(one["workers"], one["start"], one["trainings"]) == _budget_of(options):
            values = np.array([math.inf if value is None else value for value in one["regrets"]])
            found[one["problem"]][one["setting"]][one["seed"]] = values
    whole: dict[str, list[Values]] = defaultdict(list)
    for problem, settings in found.items():
        own = settings[options.setting]
        print(f"\n{problem}, {options.workers} workers, start {options.start:g} s, {len(own)} seeds", flush=True)
        for setting, there in settings.items():
            seeds = sorted(own.keys() & there.keys())
            if seeds:
                pair = [np.array([side[seed] for seed in seeds]) for side in (own, there)]
                whole[setting].append(log_ratios(*pair))
                medians = " ".join(f"{np.median(pair[1][:, at]):8.4f}" for at in _SHOWN)
                print(f"  {setting:31} {medians}   {_shown(whole[setting][-1])}   {_time_needed(*pair)}")
    print("\nall problems")
    for setting, logs in whole.items():
        print(f"  {setting:31} {'':26}   {_shown(np.concatenate(logs))}")


_SHOWN = (POINTS // 4 - 1, POINTS // 2 - 1, POINTS - 1)
"""After the time of 5, 10 and 20 trainings, or the same parts of another budget."""


def log_ratios(own: Values, there: Values) -> Values:
    """NaN where neither has a completed trial by then; a search without one counts as the worst of all pairs."""
    both = np.concatenate([own, there])
    worst = both[np.isfinite(both)].max()
    logs = [np.log(np.clip(side, LEAST_REGRET, worst)) for side in (own, there)]
    return np.where(np.isfinite(own) | np.isfinite(there), logs[0] - logs[1], np.nan)


def _shown(logs: Values) -> str:
    """The geometric means with their intervals after the parts of the time."""
    columns = []
    for column in logs[:, _SHOWN].T:
        known = column[np.isfinite(column)]
        if not len(known):
            columns.append(f"{'':20}")
            continue
        columns.append(geometric_mean(known).ljust(20))
    return "  ".join(columns)


def _time_needed(own: Values, there: Values) -> str:
    """The part of the time after which the median is as good as the other's at the end."""
    reached = np.median(own, axis=0) <= max(LEAST_REGRET, float(np.median(there[:, -1])))
    return f"after {(int(reached.argmax()) + 1) / POINTS:.0%}" if reached.any() else "not reached"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS)[:16])
    parser.add_argument("--problems", nargs="+", choices=DESIGNED + HELD_BACK + TRAINED, default=HELD_BACK)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--start", type=float, default=0)
    parser.add_argument("--trainings", type=float, default=TRAININGS)
    parser.add_argument("--setting", default="paceline hyperband, promoting")
    options = parser.parse_args()
    run(options) if options.command == "run" else report(options)


if __name__ == "__main__":
    main()
