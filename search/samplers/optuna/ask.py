"""A single ask of one of Optuna's samplers.

Optuna's own storages copy each trial that is added and keep the trials that were asked for. A proposal must do neither,
so it uses a storage that shares the history and adds nothing but the trial being asked for.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import JsonValue

from search.problem import Problem
from search.samplers.estimate import Estimating, NewestDraw, nothing
from search.samplers.optuna.conversion import distribution_of, from_optuna, frozen_trial
from search.samplers.optuna.frozen_study import FrozenStorage
from search.space.parameters import Parameter
from search.space.space import Params

Result = TypeVar("Result")

optuna.logging.set_verbosity(optuna.logging.WARNING)
_warning_filter = threading.Lock()


def without_warning(make: Callable[..., Result], **options: Any) -> Result:
    """Call `make` without Optuna's warning that a sampler or an option is experimental: the user chose it.

    The filters of warnings belong to the whole process, so one thread at a time changes them.
    """
    with _warning_filter, warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return make(**options)


def ask(problem: Problem, sampler: optuna.samplers.BaseSampler, history: Sequence[FrozenTrial], number: int) -> Params:
    """What the sampler proposes as trial `number` after the history, which is in the order of its numbers."""
    study = study_for(problem, sampler, history, number)
    with np.errstate(all="ignore"):  # in ranges at the limits of floats densities become 0; the draw is still valid
        trial = study.ask()
        return problem.space.draw(partial(suggested, trial))


def newest_draw(
    problem: Problem, sampler: optuna.samplers.BaseSampler, history: Sequence[FrozenTrial], number: int
) -> NewestDraw:
    """As `ask`, with what the sampler's model expects if it tells."""
    params = ask(problem, sampler, history, number)
    tell = partial(sampler.estimate, problem, params) if isinstance(sampler, Estimating) else nothing
    return NewestDraw(number, params, tell)


def study_for(
    problem: Problem, sampler: optuna.samplers.BaseSampler, history: Sequence[FrozenTrial], number: int
) -> optuna.Study:
    """A study whose next trial is `number`."""
    storage = _AskStorage(history, number)
    return optuna.create_study(storage=storage, sampler=sampler, directions=list(problem.directions))


def suggested(trial: optuna.Trial, name: str, parameter: Parameter) -> JsonValue:
    """The value that the trial's sampler suggests for the parameter."""
    distribution = distribution_of(parameter)
    value: Any
    match distribution:
        case CategoricalDistribution(choices=choices):
            value = trial.suggest_categorical(name, choices)
        case IntDistribution(low=low, high=high, step=step, log=log):
            value = trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            value = trial.suggest_float(name, low, high, step=step, log=log)
    return from_optuna(parameter, value)


class _AskStorage(FrozenStorage):
    """The shared history and one running trial. A trial's id is its number."""

    def __init__(self, history: Sequence[FrozenTrial], number: int) -> None:
        self._asked = frozen_trial(number, TrialState.RUNNING)
        super().__init__([*history, self._asked])

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:  # noqa: ARG002
        return self._asked.number

    def get_trial(self, trial_id: int) -> FrozenTrial:
        if trial_id == self._asked.number:
            return self._asked
        return next(trial for trial in self._frozen_trials if trial.number == trial_id)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        trial = self.get_trial(trial_id)
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.get_trial(trial_id).system_attrs[key] = value
