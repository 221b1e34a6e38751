"""The history as Optuna's frozen trials, which is updated so that a proposal converts only what is new."""

from collections.abc import Sequence
from copy import copy
from statistics import NormalDist

from optuna.trial import FrozenTrial, TrialState

from search.curve_score import Curve, curve_of, scores
from search.problem import Observation, Problem, sign_of
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of


class FrozenTrials:
    """Optuna's trials. If there is a curve score, every trial that has shown something counts as completed."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._distributions = distributions_of(problem.space)
        self._trials: dict[int, FrozenTrial] = {}
        self._curves: dict[int, Curve] = {}
        self._is_sorted = True

    def learn(self, observation: Observation) -> None:
        """Add a trial, or replace what was known of the trial with this number."""
        number = observation.number
        if number not in self._trials and self._trials:
            self._is_sorted = self._is_sorted and number > next(reversed(self._trials))
        self._trials[number] = self._frozen(observation)

    def without(self, number: int) -> list[FrozenTrial]:
        """All trials except `number`, in the order of their numbers."""
        if not self._is_sorted:
            self._trials = dict(sorted(self._trials.items()))
            self._is_sorted = True
        return [trial for trial in self._trials.values() if trial.number != number]

    def completed(self, number: int) -> list[FrozenTrial]:
        """The completed trials except `number`, in the order of their numbers."""
        return [trial for trial in self.without(number) if trial.state is TrialState.COMPLETE]

    def ranked(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The trials; those that have shown something have a value by their rank among each other.

        The values are quantiles of the normal distribution, which suit models that assume it.
        """
        completed = [trial for trial in trials if trial.number in self._curves]
        sign, count = sign_of(self._problem.directions[0]), len(completed)
        shares = scores([self._curves[trial.number] for trial in completed])
        values = {
            trial.number: -sign * NormalDist().inv_cdf((share * (count - 1) + 0.5) / count)
            for trial, share in zip(completed, shares.tolist(), strict=True)
        }
        return [with_value(trial, values[trial.number]) if trial.number in values else trial for trial in trials]

    def _frozen(self, observation: Observation) -> FrozenTrial:
        trial = frozen_trial_of(self._problem, observation, self._distributions)
        if not self._problem.curve_score:
            return trial
        self._curves.pop(observation.number, None)
        curve = curve_of(self._problem, observation)
        if curve is None:
            return trial
        self._curves[observation.number] = curve
        return with_value(trial, 0.0)


def with_value(trial: FrozenTrial, *values: float) -> FrozenTrial:
    """As completed with this value, or one for each objective."""
    found = copy(trial)
    found.state, found.datetime_complete = TrialState.COMPLETE, found.datetime_start
    found.values = list(values)
    return found
