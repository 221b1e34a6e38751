"""Searches of a function without learning curves, one trial after the other, by Paceline's and Optuna's samplers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna

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


def by_paceline(sampler: str, task: SequentialTask, seed: int, trials: int) -> Losses:
    problem = Problem(Space.model_validate(task.space), ("minimize",), max_trials=trials)
    view, losses = StudyView(Study(problem, SamplerSpec(sampler=sampler), seed)), Losses()
    for number in range(trials):
        params = view.propose([], number)
        losses.append(loss := task.loss(params))
        ended = (
            Observation(number, params, "diverged")
            if loss is None
            else Observation(number, params, "completed", (loss,))
        )
        view.update([ended])
    return losses


def by_optuna(
    sampler: Callable[..., optuna.samplers.BaseSampler], task: SequentialTask, seed: int, trials: int
) -> Losses:
    """Optuna learns nothing of a trial that has failed."""
    space = Space.model_validate(task.space)
    distributions = distributions_of(space)
    study, losses = optuna.create_study(sampler=sampler(seed=seed)), Losses()
    for _ in range(trials):
        trial = study.ask(distributions)
        params = {name: from_optuna(space.root[name], value) for name, value in trial.params.items()}
        losses.append(loss := task.loss(params))
        if loss is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, loss)
    return losses
