"""Some proposals from earlier experiments, as far as they have predicted the ranks of this experiment's own trials.

The sampler learns from the own trials alone, so an earlier experiment that misleads costs no more than the proposals
that were taken from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search.planned_proposer import Choice, PlannedProposer
from search.problem import Observation, Problem
from search.samplers.constrained_draw import derived_seed
from search.samplers.sampler import Proposer, Source, source_of
from search.space.parameters import Params
from search.trial_ranking import ranked
from search.warm_starts.earlier_experiment import EarlierExperiment
from search.warm_starts.similarity import MAX_RANKED, MIN_RANKED, share, similarity

UNJUDGED = 16
"""While fewer than MIN_RANKED own trials have a rank, every so many-th proposal is from an earlier experiment.

With 8, an experiment that misleads cost eight workers one of their first eight trials: 15 % of the regret."""
_WITHOUT_RANK = "running", "failed"

Ranks = Sequence[tuple[Observation, float]]


@dataclass(frozen=True)
class Contribution:
    """What earlier experiments have to do with a proposal.

    `weights` has the similarity of each, by name; `experiment` is the one that the proposal comes from, if it does.
    """

    weights: dict[str, float] = field(default_factory=dict)
    experiment: str | None = None

    def to_json(self) -> dict[str, Any] | None:
        """None without earlier experiments."""
        weights = {name: round(weight, 3) for name, weight in self.weights.items()}
        return {"weights": weights, "experiment": self.experiment} if weights else None


@dataclass(frozen=True)
class _Plan:
    """`params` is None if the proposal is the sampler's."""

    contribution: Contribution
    params: Params | None = None


class WarmStartProposer(PlannedProposer[_Plan]):
    """Wraps the proposer of a sampler, which does not see the observations of earlier experiments."""

    def __init__(self, sampler: Proposer, problem: Problem, seed: int) -> None:
        super().__init__(sampler, seed)
        self._problem = problem
        self._known: dict[str, dict[int, Observation]] = {}
        self._earlier: dict[str, EarlierExperiment] | None = None
        self._own: dict[int, Observation] = {}
        self._predictions: dict[tuple[str, int], float] = {}

    def learn(self, observation: Observation) -> None:
        self._newest = None
        if observation.experiment is not None:
            self._known.setdefault(observation.experiment, {})[observation.number] = observation
            self._earlier, self._predictions = None, {}
            return
        self._sampler.learn(observation)
        known = self._own.get(observation.number)
        if known is not None and known.params != observation.params:
            self._predictions = {key: one for key, one in self._predictions.items() if key[1] != observation.number}
        self._own[observation.number] = observation

    def source(self, number: int) -> Source:
        return source_of(self._sampler, number) if self._plan(number).params is None else "warm_start"

    def contribution(self, number: int) -> Contribution:
        return self._plan(number).contribution

    def _planned(self, number: int) -> _Plan:
        if not self._models or self._ended_count(number) >= MAX_RANKED:
            return _Plan(Contribution())
        others = [self._own[other] for other in sorted(self._own) if other != number]
        ranks = ranked(self._problem, others)
        predicted = {name: self._predicted(name, ranks) for name in self._models}
        standing = np.array([one for _, one in ranks], dtype=float)
        weights = {name: similarity(one, standing) for name, one in predicted.items()}
        random = np.random.default_rng(derived_seed(self._seed, number, Choice.OF_WARM_STARTS))
        if random.random() >= self._share(list(weights.values()), len(ranks), number):
            return _Plan(Contribution(weights))
        name = _chosen(weights, random.random())
        params = self._models[name].propose(number, others, ranks, predicted[name])
        return _Plan(Contribution(weights, name), params)

    def _ended_count(self, number: int) -> int:
        """The own trials that have a rank, without ranking them: there may be thousands."""
        return sum(one.status not in _WITHOUT_RANK and one.number != number for one in self._own.values())

    def _share(self, weights: Sequence[float], count: int, number: int) -> float:
        """While there are few ranks, the number decides, so that the first trials in parallel are of both kinds."""
        return share(weights, count) if count >= MIN_RANKED else float(number % UNJUDGED == UNJUDGED - 1)

    def _predicted(self, name: str, ranks: Ranks) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([self._prediction(name, one) for one, _ in ranks], dtype=float)

    def _prediction(self, name: str, one: Observation) -> float:
        key = name, one.number
        if key not in self._predictions:
            self._predictions[key] = self._models[name].prediction(one.params)
        return self._predictions[key]

    @property
    def _models(self) -> dict[str, EarlierExperiment]:
        """The experiments with a ranked trial, in the order of the specification: the first has the highest numbers."""
        if self._earlier is None:
            names = sorted(self._known, key=lambda name: -max(self._known[name]))
            models = {name: self._model(name) for name in names}
            self._earlier = {name: model for name, model in models.items() if model.count}
        return self._earlier

    def _model(self, name: str) -> EarlierExperiment:
        return EarlierExperiment(self._problem, list(self._known[name].values()), self._seed)


def _chosen(weights: dict[str, float], chance: float) -> str:
    """One of the names with a probability as the square of its weight; the first one if all weights are 0."""
    names, squares = list(weights), np.square(list(weights.values()))
    if not squares.sum():
        return names[0]
    ends = np.cumsum(squares) / squares.sum()
    return names[min(int(np.searchsorted(ends, chance, side="right")), len(names) - 1)]
