"""Covariance matrix adaptation evolution strategy."""

import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers._lazy_random_state import LazyRandomState
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field, model_validator

from search.lazy_import import loaded
from search.mistakes import Mistake, refuse
from search.problem import Need, sign_of
from search.samplers.base import Sampler, stream, too_large
from search.samplers.constrained_draw import obeying
from search.samplers.generations import Generations
from search.samplers.optuna.ask import ask, made
from search.samplers.optuna.conversion import searched
from search.samplers.optuna.history import History
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting


class Cmaes(Sampler):
    """Optuna's CmaEsSampler, without the options that Optuna is about to remove."""

    cannot: ClassVar[frozenset[Need]] = frozenset(Need)

    n_startup_trials: Annotated[int, Field(ge=0)] = 1
    popsize: Annotated[int, Field(ge=4)] | None = None
    consider_pruned_trials: bool = False
    use_separable_cma: bool = False
    with_margin: bool = False
    lr_adapt: bool = False

    @model_validator(mode="after")
    def _go_together(self) -> "Cmaes":
        chosen = [name for name in ("use_separable_cma", "with_margin", "lr_adapt") if getattr(self, name)]
        mistakes = [Mistake((name,), f"cannot be used together with {chosen[0]}") for name in chosen[1:]]
        refuse(type(self).__name__, mistakes, self.model_dump())
        return self

    def unsuited(self, setting: "Setting") -> list[Mistake]:  # noqa: ARG002
        return too_large("popsize", self.popsize or 0, 100_000)

    def proposer(self, problem: "Problem") -> "CmaesProposer":
        loaded("cmaes")
        return CmaesProposer(problem, self)


class CmaesProposer:
    def __init__(self, problem: "Problem", options: Cmaes) -> None:
        self._problem, self._options = problem, options
        self._history = History(problem)
        self._dimensions = len(searched(problem.space))
        self._evolved = Generations(self._popsize(), self._told)

    def learn(self, observation: "Observation") -> None:
        self._history.learn(observation)

    def propose(self, number: int) -> Params:
        learned = [trial for trial in self._history.without(number) if self._value(trial) is not None]
        started = len(learned) >= self._options.n_startup_trials
        counted = learned[self._options.n_startup_trials :] if self._dimensions else []  # else nothing can evolve
        optimizer = self._evolved.after(counted)
        return obeying(
            self._problem,
            number,
            lambda seed: ask(self._problem, self._sampler(seed, optimizer, started=started), [], number),
        )

    def _sampler(self, seed: int, optimizer: bytes | None, *, started: bool = True) -> "_Evolved":
        options = self._options.model_dump(exclude={"n_startup_trials"})
        if self._dimensions == 1:  # the only variance there is
            options["use_separable_cma"] = False
        space = searched(self._problem.space) if started else {}
        return made(_Evolved, space=space, optimizer=optimizer, seed=seed, **options)

    def _popsize(self) -> int:
        """Optuna's, which is cmaes's own unless it is given."""
        return self._options.popsize or 4 + int(3 * np.log(max(1, self._dimensions)))

    def _told(self, optimizer: bytes | None, generation: list[FrozenTrial], _: int) -> bytes:
        sign = sign_of(self._problem.directions[0])
        solutions = [
            (self._sampler(self._seed(trial.number), optimizer).point(trial), sign * (self._value(trial) or 0.0))
            for trial in generation
        ]
        return self._sampler(0, optimizer).told(solutions)

    def _seed(self, number: int) -> int:
        return stream(self._problem.seed, number)

    def _value(self, trial: FrozenTrial) -> float | None:
        if trial.state is TrialState.COMPLETE:
            return trial.value
        if self._options.consider_pruned_trials and trial.state is TrialState.PRUNED and trial.intermediate_values:
            return trial.intermediate_values[max(trial.intermediate_values)]
        return None


class _Evolved(optuna.samplers.CmaEsSampler):
    """Optuna's sampler with an optimizer that has been told all there is to tell, pickled; None before the first."""

    def __init__(
        self, space: dict[str, BaseDistribution], optimizer: bytes | None, *, seed: int, **options: Any
    ) -> None:
        super().__init__(seed=seed, n_startup_trials=0, warn_independent_sampling=False, **options)
        self._known, self._optimizer, self._seed = space, optimizer, seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return self._known

    @cached_property
    def _transform(self) -> _SearchSpaceTransform:
        return _SearchSpaceTransform(self._known, transform_step=not self._with_margin, transform_0_1=True)

    def told(self, solutions: list[tuple[np.ndarray, float]]) -> bytes:
        optimizer = self._current()
        optimizer.tell(solutions)
        return pickle.dumps(optimizer)

    def point(self, trial: FrozenTrial) -> np.ndarray:
        """Where the trial was in the optimizer's terms."""
        params = {name: trial.params[name] for name in self._known}
        point: np.ndarray = self._transform.transform(params)
        if self._with_margin:
            # Between the steps, and known only from asking again; not of a trial that another generation asked for.
            optimizer = self._current()
            optimizer._rng.seed(self._cma_rng.rng.randint(1, 2**16) + max(0, trial.number))  # noqa: SLF001
            encoded, raw = optimizer.ask()
            if self._transform.untransform(encoded) == params:
                return np.asarray(raw)
        return point

    def _current(self) -> Any:
        if self._optimizer is None:
            return self._init_optimizer(self._transform, optuna.study.StudyDirection.MINIMIZE)
        return pickle.loads(self._optimizer)  # noqa: S301 (made here)

    def _init_optimizer(self, trans: _SearchSpaceTransform, direction: optuna.study.StudyDirection) -> Any:
        optimizer = super()._init_optimizer(trans, direction)
        # It took random numbers for a seed that is never used; a proposal's must not depend on that.
        self._cma_rng = LazyRandomState(self._seed)
        return optimizer

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:  # noqa: ARG002
        return None if self._optimizer is None else self._current()
