"""Tree-structured Parzen estimator."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.sampler import default_gamma, default_gamma_multiobjective
from optuna.trial import FrozenTrial
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.samplers.base import Sampler, too_large
from search.samplers.constrained_draw import obeying
from search.samplers.history_columns import Columns, Rows
from search.samplers.optuna.ask import ask, made
from search.samplers.optuna.parzen_density import Array, log_density
from search.samplers.optuna.parzen_estimator import Kernels
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting


_MANY = 256
"""Rows from which on it pays to keep them in order."""


class Tpe(Sampler):
    """Optuna's TPESampler. `multivariate` left out: true with one objective, false with several."""

    takes_parts: ClassVar[bool] = True

    n_startup_trials: Annotated[int, Field(ge=0)] = 10
    n_ei_candidates: Annotated[int, Field(ge=1)] = 24
    multivariate: bool | None = None
    group: bool = False
    constant_liar: bool = True

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.group and self.multivariate is False:
            refuse("Tpe", [Mistake(("group",), "needs multivariate: true")], self.model_dump())
        return self

    def unsuited(self, setting: "Setting") -> list[Mistake]:  # noqa: ARG002
        return too_large("n_ei_candidates", self.n_ei_candidates, 10_000)  # each is held against each trial

    def proposer(self, problem: "Problem") -> "TpeProposer":
        return TpeProposer(problem, self)


class TpeProposer:
    """Keeps the history as columns of numbers, so that a proposal converts only what is new."""

    def __init__(self, problem: "Problem", options: Tpe) -> None:
        self._problem, self._options = problem, options
        self._columns = Columns(problem)

    def learn(self, observation: "Observation") -> None:
        self._columns.learn(observation)

    def propose(self, number: int) -> Params:
        rows = self._columns.besides(number, running=self._options.constant_liar)
        return obeying(self._problem, number, lambda seed: ask(self._problem, self._sampler(rows, seed), [], number))

    def _sampler(self, rows: Rows, seed: int) -> "_OnColumns":
        options = self._options.model_dump()
        if self._options.group:
            options["multivariate"] = True
        return made(_OnColumns, columns=self._columns, rows=rows, seed=seed, **options)


class _OnColumns(optuna.samplers.TPESampler):
    """Optuna's sampler, which gets what it needs of the history from columns instead of going through all trials."""

    def __init__(self, *, columns: Columns, rows: Rows, **options: Any) -> None:
        super().__init__(**options)
        self._columns, self._rows = columns, rows
        self._ended = columns.ended(rows)
        self._halves: tuple[Rows, Rows] | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        if not self._is_multivariate(study):
            return {}
        if self._group:
            self._search_space_group = self._columns.groups(self._ended)
            spaces = self._search_space_group.search_spaces
            return {name: one for space in spaces for name, one in sorted(space.items()) if not one.single()}
        return {name: one for name, one in self._columns.always_there(self._ended).items() if not one.single()}

    def _sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space or len(self._ended) < self._n_startup_trials:
            return {}
        return self._sample(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if len(self._ended) < self._n_startup_trials:
            return self._random_sampler.sample_independent(study, trial, param_name, param_distribution)
        return self._sample(study, trial, {param_name: param_distribution})[param_name]

    def _sample(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        several = len(study.directions) > 1
        if self._halves is None:
            gamma = default_gamma_multiobjective if several else default_gamma
            self._halves = self._columns.split(study, self._rows, gamma)
        below, above = (self._columns.having(half, search_space) for half in self._halves)
        good = self._kernels(below, search_space, *([np.ones(len(below))] if several else []))
        rest = self._kernels(above, search_space)
        candidates = good.sample(self._rng.rng, self._n_ei_candidates)
        points = np.array(list(candidates.values())).T
        gain = _log_density(good, points) - _log_density(rest, points)
        best = self._compare(candidates, gain)
        return {name: one.to_external_repr(best[name]) for name, one in search_space.items()}

    def _kernels(self, rows: Rows, search_space: dict[str, BaseDistribution], *weights: Array) -> Kernels:
        observations = self._columns.observations(rows, search_space)
        orders = {name: self._columns.order(rows, name) for name in search_space if len(rows) >= _MANY}
        return Kernels(observations, search_space, self._parzen_estimator_parameters, *weights, orders=orders)


def _log_density(estimator: _ParzenEstimator, points: Array) -> Array:
    return log_density(estimator._mixture_distribution, points)  # noqa: SLF001
