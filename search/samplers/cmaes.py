"""Covariance matrix adaptation evolution strategy."""

from typing import Annotated, ClassVar

import numpy as np
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Feature, Observation, Problem, sign_of
from search.samplers.constrained_draw import constrained_draw
from search.samplers.generations import Generations
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.cmaes_sampler import EvolvedCmaEsSampler
from search.samplers.optuna.conversion import joint_distributions_of
from search.samplers.optuna.frozen_trials import FrozenTrials
from search.samplers.sampler import Sampler, derived_seed, too_large
from search.space.space import Params
from search.thread_safe_import import import_modules


class Cmaes(Sampler):
    """Optuna's CmaEsSampler, without the options that Optuna is about to remove."""

    unsupported: ClassVar[frozenset[Feature]] = frozenset(Feature)

    n_startup_trials: Annotated[int, Field(ge=0)] = 1
    popsize: Annotated[int, Field(ge=4)] | None = None
    consider_pruned_trials: bool = False
    use_separable_cma: bool = False
    with_margin: bool = False
    lr_adapt: bool = False

    @model_validator(mode="after")
    def _variants_exclude_each_other(self) -> "Cmaes":
        chosen = [name for name in ("use_separable_cma", "with_margin", "lr_adapt") if getattr(self, name)]
        mistakes = [Mistake((name,), f"cannot be used together with {chosen[0]}") for name in chosen[1:]]
        refuse(type(self).__name__, mistakes, self.model_dump())
        return self

    def mistakes_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002
        return too_large("popsize", self.popsize or 0, 100_000)

    def proposer(self, problem: Problem, seed: int) -> "CmaesProposer":
        import_modules("cmaes")
        return CmaesProposer(problem, seed, self)


class CmaesProposer:
    def __init__(self, problem: Problem, seed: int, options: Cmaes) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._trials = FrozenTrials(problem)
        self._dimensions = len(joint_distributions_of(problem.space))
        self._optimizers = Generations(self._popsize(), self._evolved)

    def learn(self, observation: Observation) -> None:
        self._trials.learn(observation)

    def propose(self, number: int) -> Params:
        learned = [trial for trial in self._trials.without(number) if self._value(trial) is not None]
        started = len(learned) >= self._options.n_startup_trials
        counted = learned[self._options.n_startup_trials :] if self._dimensions else []  # else no generation
        optimizer = self._optimizers.after(counted)

        def draw(seed: int) -> Params:
            return ask(self._problem, self._sampler(seed, optimizer, started=started), [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw)

    def _sampler(self, seed: int, optimizer: bytes | None, *, started: bool = True) -> EvolvedCmaEsSampler:
        options = self._options.model_dump(exclude={"n_startup_trials"})
        if self._dimensions == 1:  # there is only one variance
            options["use_separable_cma"] = False
        space = joint_distributions_of(self._problem.space) if started else {}
        return without_warning(EvolvedCmaEsSampler, space=space, optimizer=optimizer, seed=seed, **options)

    def _popsize(self) -> int:
        """By default that of Optuna, which is that of the library cmaes."""
        return self._options.popsize or 4 + int(3 * np.log(max(1, self._dimensions)))

    def _evolved(self, optimizer: bytes | None, generation: list[FrozenTrial], _: int) -> bytes:
        sign = sign_of(self._problem.directions[0])
        solutions = [
            (
                self._sampler(derived_seed(self._seed, trial.number), optimizer).point_of(trial),
                sign * (self._value(trial) or 0.0),
            )
            for trial in generation
        ]
        return self._sampler(0, optimizer).evolved(solutions)

    def _value(self, trial: FrozenTrial) -> float | None:
        if trial.state is TrialState.COMPLETE:
            return trial.value
        if self._options.consider_pruned_trials and trial.state is TrialState.PRUNED and trial.intermediate_values:
            return trial.intermediate_values[max(trial.intermediate_values)]
        return None
