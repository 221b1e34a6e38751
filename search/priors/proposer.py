"""Some proposals from the priors and around the best trial, instead of the sampler's.

As PriorBand (Mallik et al., 2023) does. Their share falls with the number of trials that have shown something, because
the sampler learns from these. It belongs to the priors while trials near them do better than others, and otherwise to
the surroundings of the best trial.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from search.planned_proposer import Choice, PlannedProposer
from search.priors.distribution import PriorDistribution, around
from search.priors.evidence import Shares, shares
from search.problem import Observation, Problem
from search.samplers.constrained_draw import MAX_DRAWS, constrained_draw, derived_seed
from search.samplers.sampler import Proposer, Source, source_of
from search.space.parameters import Parameter, Params, coded
from search.trial_ranking import ranked

CHANGE = 0.5
"""The probability that a parameter of the best trial is changed; one always is."""
LOCAL_WIDTH = 0.1
"""The standard deviation of a change, as a part of the parameter's range."""


@dataclass(frozen=True)
class _Plan:
    """Where a trial's proposal comes from, and its params if not from the sampler."""

    source: Source | None
    params: Params | None = None


class PriorProposer(PlannedProposer[_Plan]):
    """Wraps the proposer of a sampler, which knows nothing of priors and learns from all trials.

    It learns nothing from the trials of earlier experiments: a WarmStartProposer does, around samplers that learn.
    """

    def __init__(self, sampler: Proposer, problem: Problem, seed: int) -> None:
        super().__init__(sampler, seed)
        self._problem = problem
        self._prior = PriorDistribution(problem.space)
        self._mode = self._drawn(0, self._prior.mode)
        self._trials: dict[int, Observation] = {}
        self._nearness: dict[int, float] = {}

    def learn(self, observation: Observation) -> None:
        self._sampler.learn(observation)
        if observation.experiment is not None:
            return
        self._trials[observation.number] = observation
        self._nearness[observation.number] = self._prior.nearness(observation.params)
        self._newest = None

    def source(self, number: int) -> Source:
        return self._plan(number).source or source_of(self._sampler, number)

    def shares(self, number: int) -> Shares:
        """How likely the proposal of trial `number` is to come from elsewhere than the sampler."""
        return self._shares(self._ranked(number))

    def _planned(self, number: int) -> _Plan:
        if not self._is_mode_tried(number):
            return _Plan("prior", self._mode)
        known = self._ranked(number)
        seed = derived_seed(self._seed, number, Choice.OF_PRIORS)
        wanted, chance = self._shares(known), np.random.default_rng(seed).random()
        if chance < wanted.prior:
            return _Plan("prior", self._drawn(number, self._prior.draw))
        if chance < wanted.prior + wanted.incumbent:
            best = max(known, key=lambda one: (one[1], -one[0].number))[0].params
            return _Plan("incumbent", self._drawn(number, lambda random: self._beside_but_not(best, random)))
        return _Plan(None)

    def _is_mode_tried(self, number: int) -> bool:
        """True also if a user has enqueued it, or if it has no parameter with a prior."""
        key = self._key(self._mode)
        return not key or any(self._key(one.params) == key for one in self._trials.values() if one.number != number)

    def _key(self, params: Params) -> Params:
        root = self._problem.space.root
        return {name: coded(root[name], value) for name, value in self._prior.believed(params).items()}

    def _ranked(self, number: int) -> list[tuple[Observation, float]]:
        others = (self._trials[other] for other in sorted(self._trials) if other != number)
        return ranked(self._problem, list(others))

    def _shares(self, known: list[tuple[Observation, float]]) -> Shares:
        nearness = [self._nearness[one.number] for one, _ in known]
        return shares(np.array(nearness, dtype=float), np.array([standing for _, standing in known], dtype=float))

    def _drawn(self, number: int, draw: Callable[[np.random.Generator], Params]) -> Params:
        return constrained_draw(self._problem.space, self._seed, number, lambda seed: draw(np.random.default_rng(seed)))

    def _beside_but_not(self, best: Params, random: np.random.Generator) -> Params:
        """A whole number or a choice that is drawn again may be the same as before."""
        found = (self._beside(best, random) for _ in range(MAX_DRAWS))
        return next((params for params in found if params != best), best)

    def _beside(self, best: Params, random: np.random.Generator) -> Params:
        """The configuration with some values changed a little. Parameters that it lacks are drawn from the priors."""
        always = sorted(best)[int(random.integers(len(best)))] if best else None

        def choose(name: str, parameter: Parameter) -> JsonValue:
            if name not in best:
                return self._prior.one(name, random)
            if name != always and random.random() >= CHANGE:
                return best[name]
            return around(parameter, best[name], LOCAL_WIDTH, 0).draw(random)

        return self._problem.space.draw(choose)
