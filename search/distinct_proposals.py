"""Keeps a search from repeating a configuration before all of them have been tried.

Needed where configurations without a continuous parameter exist, and for samplers that repeat configurations of a
continuous space: corners, or a parent whose child is its copy.
"""

from collections.abc import Iterator

import numpy as np

from search.problem import Observation, SpaceExhausted
from search.space.configuration_key import Key, key_of
from search.space.parameters import CategoricalParameter, Parameter
from search.space.space import Params, Space
from search.space.unit_scale import NumberParameter, from_unit, to_unit

MAX_DRAWS = 64
MAX_WHOLE_DRAWS = 200
"""Where most choices have no continuous parameter and have been tried, few draws find one that has."""

NEARBY_DRAWS = 8
DISTANCE = 0.1
"""The standard deviation of these draws from the repeated value, as a share of the parameter's range."""


class DistinctProposals:
    """Knows the configurations that trials have, whatever their status.

    It leaves out those of earlier experiments, and those that the space no longer has since it was narrowed.
    `ends_with_space`: when every configuration has a trial, none is proposed again.
    """

    def __init__(self, space: Space, seed: int, *, ends_with_space: bool = False) -> None:
        self._space, self._seed, self._size = space, seed, space.configurations.size
        self._ends_with_space = ends_with_space
        self._keys: dict[int, Key] = {}
        self._numbers: dict[Key, set[int]] = {}

    def learn(self, observation: Observation) -> None:
        number = observation.number
        if number < 0:
            return
        if number in self._keys:
            self._forget(number)
        if self._space.mistakes_in(observation.params):
            return
        key = self._keys[number] = key_of(self._space, observation.params)
        self._numbers.setdefault(key, set()).add(number)

    def instead_of(self, params: Params, number: int) -> Params:
        """The params, or if another trial than `number` has them, one that none has and that differs in little.

        When every configuration has a trial, the params, or SpaceExhausted is raised. Also if no untried configuration
        can be found: floats may not distinguish all steps, so that there are fewer configurations than steps.
        """
        if not self._is_tried(params, number):
            return params
        found = None if self._are_all_tried(number) else self._untried(params, number)
        if found is None and self._ends_with_space:
            raise SpaceExhausted(f"all configurations of the space ({self._size}) have been tried")
        return params if found is None else found

    def _are_all_tried(self, number: int) -> bool:
        is_only_own = self._numbers.get(self._keys.get(number, frozenset())) == {number}
        return len(self._numbers) - is_only_own >= self._size

    def _untried(self, params: Params, number: int) -> Params | None:
        return next((one for one in self._candidates(params, number) if not self._is_tried(one, number)), None)

    def _forget(self, number: int) -> None:
        key = self._keys.pop(number)
        self._numbers[key].remove(number)
        if not self._numbers[key]:
            del self._numbers[key]

    def _candidates(self, params: Params, number: int) -> Iterator[Params]:
        """Moves a number a little, or draws more and more of the parameters again, then all of them.

        The last resort is to go through all configurations.
        """
        random = np.random.default_rng((self._seed, number % 2**32, 2))
        names, configurations = sorted(params), self._space.configurations
        yield from self._moved(params, random)
        for draw in range(MAX_DRAWS):
            again = random.choice(names, 1 + draw * len(names) // MAX_DRAWS, replace=False).tolist()
            kept = {name: value for name, value in params.items() if name not in again}
            yield configurations.nearby(kept, random.random)
        for _ in range(MAX_WHOLE_DRAWS):
            yield configurations.nearby({}, random.random)
        for index in range(self._size):
            yield configurations[index]

    def _moved(self, params: Params, random: np.random.Generator) -> Iterator[Params]:
        numbers = {name: one for name in sorted(params) if (one := _movable(self._space.root[name])) is not None}
        for _ in range(NEARBY_DRAWS if numbers else 0):
            name = str(random.choice(list(numbers)))
            position = to_unit(numbers[name], float(str(params[name]))) + random.normal(0, DISTANCE)
            value = from_unit(numbers[name], float(np.clip(position, 0, 1)))
            yield self._space.configurations.nearby({**params, name: value}, random.random)

    def _is_tried(self, params: Params, number: int) -> bool:
        return bool(self._numbers.get(key_of(self._space, params), set()) - {number})


def _movable(parameter: Parameter) -> NumberParameter | None:
    """The parameter, if it is a number with more than one value."""
    if isinstance(parameter, CategoricalParameter) or parameter.low == parameter.high:
        return None
    return parameter
