"""One question to a sampler of Optuna.

Optuna's own storages copy each trial that is put into them and keep what was asked before. A proposal must do neither,
so it gets a storage that shows it the history as it is and holds nothing else but the trial being asked for.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import JsonValue

from search.samplers.optuna.conversion import distribution_of, from_optuna, frozen
from search.samplers.optuna.frozen_study import Shown
from search.space.parameters import Parameter
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Problem

Made = TypeVar("Made")

optuna.logging.set_verbosity(optuna.logging.WARNING)
_making = threading.Lock()


def made(kind: Callable[..., Made], **options: Any) -> Made:
    """One of Optuna's samplers or their parts, without its warning that it or its options may change some day.

    They are the user's choice. The filter is everybody's, so it is changed by one thread at a time.
    """
    with _making, warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return kind(**options)


def ask(
    problem: "Problem", sampler: optuna.samplers.BaseSampler, history: Sequence[FrozenTrial], number: int
) -> Params:
    """What the sampler proposes as trial `number` after the history, which is in the order of its numbers."""
    study = study_of(problem, sampler, history, number)
    with np.errstate(all="ignore"):  # in ranges at the limits of floats densities vanish; the draw still holds
        trial = study.ask()
        return problem.space.draw(lambda name, parameter: _suggested(trial, name, parameter))


def study_of(
    problem: "Problem", sampler: optuna.samplers.BaseSampler, history: Sequence[FrozenTrial], number: int
) -> optuna.Study:
    storage = _Question(history, number)
    return optuna.create_study(storage=storage, sampler=sampler, directions=list(problem.directions))


def _suggested(trial: optuna.Trial, name: str, parameter: Parameter) -> JsonValue:
    known = distribution_of(parameter)
    value: Any
    match known:
        case CategoricalDistribution():
            value = trial.suggest_categorical(name, known.choices)
        case IntDistribution():
            value = trial.suggest_int(name, known.low, known.high, step=known.step, log=known.log)
        case FloatDistribution():
            value = trial.suggest_float(name, known.low, known.high, step=known.step, log=known.log)
    return from_optuna(parameter, value)


class _Question(Shown):
    """The history, which it shares and never changes, and one running trial. A trial's id is its number."""

    def __init__(self, history: Sequence[FrozenTrial], number: int) -> None:
        self._asked = frozen(number, TrialState.RUNNING)
        super().__init__([*history, self._asked])

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:  # noqa: ARG002
        return self._asked.number

    def get_trial(self, trial_id: int) -> FrozenTrial:
        if trial_id == self._asked.number:
            return self._asked
        return next(trial for trial in self._shown if trial.number == trial_id)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        trial = self.get_trial(trial_id)
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.get_trial(trial_id).system_attrs[key] = value
