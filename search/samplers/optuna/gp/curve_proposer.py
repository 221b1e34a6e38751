"""Proposals by a model of learning curves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import optuna
from optuna.trial import FrozenTrial

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.estimate import Estimate, NewestDraw
from search.samplers.learning_curve import LearningCurve, learning_curve_of
from search.samplers.optuna.ask import newest_draw
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of
from search.samplers.optuna.gp.absent_values import AbsentValues
from search.samplers.optuna.gp.curve_points import KnownPoints
from search.samplers.sampler import Source
from search.space.space import Params

MAX_DRAWS = 2
"""A draw takes long."""


class CurveSampler(Protocol):
    def __call__(self, curves: Mapping[int, LearningCurve], seed: int) -> optuna.samplers.BaseSampler:
        """A sampler for a history in which the trials that have one of the curves count as completed."""


class CurveProposer:
    """Its model starts when `startup_count` trials have shown something, and something that differs."""

    def __init__(self, problem: Problem, seed: int, sampler: CurveSampler, startup_count: int) -> None:
        self._problem, self._seed, self._sampler, self._startup_count = problem, seed, sampler, startup_count
        self._distributions = distributions_of(problem.space)
        self._absent = AbsentValues(problem.space)
        self._trials: dict[int, FrozenTrial] = {}
        self._curves: dict[int, LearningCurve] = {}
        self._newest_draw = NewestDraw()

    def learn(self, observation: Observation) -> None:
        curve = learning_curve_of(self._problem, observation)
        self._curves.pop(observation.number, None)
        if curve is not None:
            self._curves[observation.number] = curve
            observation = replace(observation, status="completed", values=(0.0,))
        trial = frozen_trial_of(self._problem, observation, self._distributions)
        [self._trials[observation.number]] = self._absent.added_to([trial])

    def source(self, number: int) -> Source:
        curves = [curve for other, curve in self._curves.items() if other != number]
        has_model = len(curves) >= self._startup_count and KnownPoints.of(curves).are_informative
        return "model" if has_model else "start_up"

    def propose(self, number: int) -> Params:
        history = [trial for _, trial in sorted(self._trials.items()) if trial.number != number]

        def draw(seed: int) -> Params:
            sampler = self._sampler(curves=self._curves, seed=seed)
            self._newest_draw = newest_draw(self._problem, sampler, history, number)
            return self._newest_draw.params

        return constrained_draw(self._problem.space, self._seed, number, draw, max_draws=MAX_DRAWS)

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return self._newest_draw.estimate(number, params)
