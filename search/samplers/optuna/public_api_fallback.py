"""Proposals by Optuna's public API alone: a study that is asked for each trial of the history again.

It is slower than the other ways, which rely on private parts, and is used where these do not work.
"""

from collections.abc import Callable

import numpy as np
import optuna
from optuna.trial import TrialState

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw, derived_seed
from search.samplers.optuna.ask import suggested
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of
from search.space.space import Params


class ReplayProposer:
    """`sampler` creates a sampler of Optuna from the seed of a trial."""

    def __init__(self, problem: Problem, seed: int, sampler: Callable[[int], optuna.samplers.BaseSampler]) -> None:
        self._problem, self._seed, self._sampler = problem, seed, sampler
        self._distributions = distributions_of(problem.space)
        self._history: dict[int, Observation] = {}

    def learn(self, observation: Observation) -> None:
        self._history[observation.number] = observation

    def propose(self, number: int) -> Params:
        def draw(seed: int) -> Params:
            study = self._replayed(number)
            study.sampler = self._sampler(seed)
            with np.errstate(all="ignore"):
                trial = study.ask()
                return self._problem.space.draw(lambda name, parameter: suggested(trial, name, parameter))

        return constrained_draw(self._problem.space, self._seed, number, draw, max_draws=2)

    def _replayed(self, number: int) -> optuna.Study:
        study = optuna.create_study(directions=list(self._problem.directions))
        for known in sorted(self._history.keys() - {number}):
            study.sampler = self._sampler(derived_seed(self._seed, known))
            self._replay(study, self._history[known])
        return study

    def _replay(self, study: optuna.Study, observation: Observation) -> None:
        frozen = frozen_trial_of(self._problem, observation, self._distributions)
        study.enqueue_trial(frozen.params)
        with np.errstate(all="ignore"):
            trial = study.ask()
            trial.relative_params  # noqa: B018 - with given params it is computed on access only, and samplers count it
        for name, parameter in self._problem.space.root.items():
            if name in frozen.params:
                suggested(trial, name, parameter)
        for step, value in frozen.intermediate_values.items():
            trial.report(value, step)
        for key, violation in frozen.constraints.items():
            trial.set_constraint(key, violation)
        if frozen.state is not TrialState.RUNNING:
            study.tell(trial, frozen.values, state=frozen.state)
