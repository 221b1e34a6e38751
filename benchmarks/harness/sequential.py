"""Searches of a function without learning curves by Paceline's and Optuna's samplers, mostly one trial at a time."""

import argparse
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import optuna
from optuna.trial import TrialState

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.conversion import distributions_of, from_optuna
from search.space.space import Space
from search.study import Study, StudyView

Params = Mapping[str, Any]
Losses = list[float | None]


@dataclass(frozen=True)
class SequentialTask:
    """`loss` is None where a training crashes."""

    space: dict[str, Any]
    loss: Callable[[Params], float | None]


def by_paceline(
    sampler: str | SamplerSpec, task: SequentialTask, seed: int, trials: int, *, workers: int = 1
) -> Losses:
    """Runs `workers` trials at the same time, of which the oldest ends first."""
    problem = Problem(Space.model_validate(task.space), ("minimize",), max_trials=trials)
    view, losses, running = (
        StudyView(Study(problem, SamplerSpec(sampler=sampler) if isinstance(sampler, str) else sampler, seed)),
        Losses(),
        deque[Observation](),
    )
    for number in range(trials):
        params = view.propose([], number)
        losses.append(loss := task.loss(params))
        view.update([Observation(number, params, "running")])
        running.append(
            Observation(number, params, "diverged")
            if loss is None
            else Observation(number, params, "completed", (loss,))
        )
        if len(running) == workers:
            view.update([running.popleft()])
    return losses


def by_optuna(
    sampler: Callable[..., optuna.samplers.BaseSampler],
    task: SequentialTask,
    seed: int,
    trials: int,
    *,
    workers: int = 1,
) -> Losses:
    """Optuna learns nothing of a trial that has failed."""
    space = Space.model_validate(task.space)
    distributions = distributions_of(space)
    study, losses, running = optuna.create_study(sampler=sampler(seed=seed)), Losses(), deque[optuna.Trial]()
    for _ in range(trials):
        running.append(trial := study.ask(distributions))
        params = {name: from_optuna(space.root[name], value) for name, value in trial.params.items()}
        losses.append(task.loss(params))
        if len(running) == workers:
            oldest = running.popleft()
            loss = losses[oldest.number]
            study.tell(oldest, loss, state=TrialState.FAIL if loss is None else TrialState.COMPLETE)
    return losses


Searcher = Callable[[SequentialTask, int, int], Losses]
"""Of the task, the seed and the number of trials."""

OPTUNAS_AND_OURS: dict[str, Searcher] = {
    "paceline gp": partial(by_paceline, "gp"),
    "paceline tpe": partial(by_paceline, "tpe"),
    "optuna gp": partial(by_optuna, optuna.samplers.GPSampler),
    "optuna tpe": partial(by_optuna, optuna.samplers.TPESampler),
    "random": partial(by_optuna, optuna.samplers.RandomSampler),
}


def run_from_command_line(
    description: str | None,
    problems: Collection[str],
    searchers: Collection[str],
    report: Callable[[str, Sequence[str], int, Sequence[int]], None],
    *,
    trials: int,
) -> None:
    """Call `report` for each problem, with the searchers, the number of trials and the seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=problems, default=[*problems])
    parser.add_argument("--searchers", nargs="+", choices=searchers, default=[*searchers])
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    optuna.logging.disable_default_handler()
    warnings.simplefilter("ignore")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for name in options.problems:
        report(name, options.searchers, options.trials, seeds)
