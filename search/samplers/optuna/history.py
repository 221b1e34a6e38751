"""The history as Optuna's samplers see it, so that a proposal converts only what is new."""

from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState

from search.samplers.optuna.conversion import distributions_of, remembered

if TYPE_CHECKING:
    from search.problem import Observation, Problem


class History:
    def __init__(self, problem: "Problem") -> None:
        self._problem = problem
        self._distributions = distributions_of(problem.space)
        self._trials: dict[int, FrozenTrial] = {}
        self._in_order = True

    def learn(self, observation: "Observation") -> None:
        """Take in a trial, in place of what was known of its number."""
        number = observation.number
        if number not in self._trials and self._trials:
            self._in_order = self._in_order and number > next(reversed(self._trials))
        self._trials[number] = remembered(self._problem, observation, self._distributions)

    def without(self, number: int) -> list[FrozenTrial]:
        """All trials but one, in the order of their numbers."""
        if not self._in_order:
            self._trials = dict(sorted(self._trials.items()))
            self._in_order = True
        return [trial for trial in self._trials.values() if trial.number != number]

    def completed(self, number: int) -> list[FrozenTrial]:
        """Those of them that have values."""
        return [trial for trial in self.without(number) if trial.state is TrialState.COMPLETE]
