"""The history as Optuna's frozen trials, which is updated so that a proposal converts only what is new."""

from optuna.trial import FrozenTrial, TrialState

from search.problem import Observation, Problem
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of


class FrozenTrials:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._distributions = distributions_of(problem.space)
        self._trials: dict[int, FrozenTrial] = {}
        self._is_sorted = True

    def learn(self, observation: Observation) -> None:
        """Add a trial, or replace what was known of the trial with this number."""
        number = observation.number
        if number not in self._trials and self._trials:
            self._is_sorted = self._is_sorted and number > next(reversed(self._trials))
        self._trials[number] = frozen_trial_of(self._problem, observation, self._distributions)

    def without(self, number: int) -> list[FrozenTrial]:
        """All trials except `number`, in the order of their numbers."""
        if not self._is_sorted:
            self._trials = dict(sorted(self._trials.items()))
            self._is_sorted = True
        return [trial for trial in self._trials.values() if trial.number != number]

    def completed(self, number: int) -> list[FrozenTrial]:
        """The completed trials except `number`, in the order of their numbers."""
        return [trial for trial in self.without(number) if trial.state is TrialState.COMPLETE]
