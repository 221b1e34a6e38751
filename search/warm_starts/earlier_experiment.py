"""An earlier experiment, by the ranks of its trials, so that neither the unit nor the range of its values matters."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from search.problem import Feature, Observation, Problem
from search.samplers.sampler import Proposer
from search.samplers.tpe import Tpe
from search.space.parameters import CategoricalParameter, Parameter, Params
from search.space.space import Space
from search.space.unit_scale import to_unit
from search.trial_ranking import ranked

NEIGHBOURS = 3
"""The number of its trials by which the standing of another configuration is predicted."""
MAX_LEARNED = 100
"""The best half of so many, and every n-th of the others: with more, own trials would not show among them."""

Numbers = NDArray[np.float64]


class EarlierExperiment:
    """Its trials that have shown something, best first, each with the share of the others that it ranks before."""

    def __init__(self, problem: Problem, trials: Sequence[Observation], seed: int) -> None:
        in_order = sorted(trials, key=lambda one: one.number)
        known = _thinned(sorted(ranked(problem, in_order), key=lambda one: -one[1]))
        self.count = len(known)
        self._space = problem.space
        self._places = np.array([_place(problem.space, one.params) for one, _ in known], dtype=float)
        self._standing = np.array([standing for _, standing in known], dtype=float)
        self._model = _model(problem.space, seed)
        for one, standing in known:
            self._model.learn(_valued(one, standing))

    def prediction(self, params: Params) -> float:
        """The standing, from 0 to 1, that the configuration would have had: that of the nearest trials."""
        distances = _distances(self._places, np.array(_place(self._space, params), dtype=float), self._space)
        nearest = np.argsort(distances, kind="stable")[:NEIGHBOURS]
        weights = 1 / (distances[nearest] + 1e-3)
        return float(weights @ self._standing[nearest] / weights.sum())

    def propose(
        self, number: int, own: Sequence[Observation], ranks: Sequence[tuple[Observation, float]], predicted: Numbers
    ) -> Params:
        """What tpe proposes after the trials of both: a function of the arguments, without the trial itself.

        `ranks` has the own trials that have a standing, and `predicted` the standings that were predicted for them.
        The best of these trials gets the best of these predictions, and so on: so the order of the own trials is their
        own, and the earlier experiment says how good they are among its trials.
        """
        in_order = sorted(range(len(ranks)), key=lambda index: ranks[index][1])
        values = dict(zip((ranks[index][0].number for index in in_order), np.sort(predicted).tolist(), strict=True))
        for one in own:
            self._model.learn(_valued(one, values.get(one.number)))
        return self._model.propose(number)


def _model(space: Space, seed: int) -> Proposer:
    problem = Problem(space, ("maximize",))
    return Tpe(n_startup_trials=1, group=bool(problem.parameters_with(Feature.CONDITIONS))).proposer(problem, seed)


def _valued(one: Observation, value: float | None) -> Observation:
    if value is not None:
        return Observation(one.number, one.params, "completed", (value,))
    return Observation(one.number, one.params, "running" if one.status == "running" else "failed")


def _thinned(known: list[tuple[Observation, float]]) -> list[tuple[Observation, float]]:
    half = MAX_LEARNED // 2
    rest = known[half:]
    return known[:half] + rest[:: max(1, -(-len(rest) // half))]


def _place(space: Space, params: Params) -> list[float]:
    """A number for each parameter: its position, or the index of its choice; NaN if it does not exist or is unknown."""
    return [_position(one, params[name]) if name in params else np.nan for name, one in space.root.items()]


def _position(parameter: Parameter, value: JsonValue) -> float:
    if isinstance(parameter, CategoricalParameter):
        return float(parameter.position(value) or 0)
    return to_unit(parameter, float(value))  # type: ignore[arg-type]


def _distances(places: Numbers, place: Numbers, space: Space) -> Numbers:
    """The mean over the parameters: the distance of numbers, and 1 for other choices or if only one has it."""
    apart = np.abs(places - place)
    is_choice = np.array([isinstance(one, CategoricalParameter) for one in space.root.values()])
    apart = np.where(is_choice & (apart > 0), 1.0, apart)
    mean: Numbers = np.where(np.isnan(places) & np.isnan(place), 0.0, np.where(np.isnan(apart), 1.0, apart)).mean(
        axis=1
    )
    return mean
