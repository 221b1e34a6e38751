"""CMA-ES by generations of trial numbers."""

from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from search.problem import Observation, Problem, sign_of
from search.samplers.constrained_draw import constrained_draw, derived_seed
from search.samplers.generations import Generations
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.cmaes_sampler import EvolvedCmaEsSampler
from search.samplers.optuna.conversion import joint_numbers_of
from search.samplers.optuna.frozen_trials import FrozenTrials
from search.samplers.sampler import Source
from search.space.space import Params


class CmaesProposer:
    """`options` are those of Optuna's CmaEsSampler."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        *,
        n_startup_trials: int = 1,
        popsize: int | None = None,
        consider_pruned_trials: bool = False,
        **options: Any,
    ) -> None:
        self._problem, self._seed = problem, seed
        self._startup_count, self._considers_pruned = n_startup_trials, consider_pruned_trials
        self._options = {**options, "popsize": popsize, "consider_pruned_trials": consider_pruned_trials}
        self._trials = FrozenTrials(problem)
        self._dimensions = len(joint_numbers_of(problem.space))
        self._optimizers = Generations(self._popsize(), self._evolved)

    def learn(self, observation: Observation) -> None:
        self._trials.learn(observation)

    def source(self, number: int) -> Source:
        return "model" if self._optimizer_after(self._learned(number)) else "start_up"

    def propose(self, number: int) -> Params:
        learned = self._learned(number)
        started = len(learned) >= self._startup_count
        optimizer = self._optimizer_after(learned)

        def draw(seed: int) -> Params:
            return ask(self._problem, self._sampler(seed, optimizer, started=started), [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw)

    def _learned(self, number: int) -> list[FrozenTrial]:
        return [trial for trial in self._trials.without(number) if self._value(trial) is not None]

    def _optimizer_after(self, learned: list[FrozenTrial]) -> bytes | None:
        counted = learned[self._startup_count :] if self._dimensions else []  # else no generation
        return self._optimizers.after(counted)

    def _sampler(self, seed: int, optimizer: bytes | None, *, started: bool = True) -> EvolvedCmaEsSampler:
        options = dict(self._options)
        if self._dimensions == 1:  # there is only one variance
            options["use_separable_cma"] = False
        space = joint_numbers_of(self._problem.space) if started else {}
        return without_warning(EvolvedCmaEsSampler, space=space, optimizer=optimizer, seed=seed, **options)

    def _popsize(self) -> int:
        """The default is that of Optuna, which is that of the library cmaes."""
        return self._options["popsize"] or 4 + int(3 * np.log(max(1, self._dimensions)))

    def _evolved(self, optimizer: bytes | None, generation: list[FrozenTrial], _: int) -> bytes:
        sign = sign_of(self._problem.directions[0])
        if self._problem.curve_score:
            generation = self._trials.ranked(generation)
        sampler = self._sampler(0, optimizer)
        solutions = [
            (sampler.point_of(trial, derived_seed(self._seed, trial.number)), sign * (self._value(trial) or 0.0))
            for trial in generation
        ]
        return sampler.evolved(solutions)

    def _value(self, trial: FrozenTrial) -> float | None:
        if trial.state is TrialState.COMPLETE:
            return trial.value
        if self._considers_pruned and trial.state is TrialState.PRUNED and trial.intermediate_values:
            return trial.intermediate_values[max(trial.intermediate_values)]
        return None
