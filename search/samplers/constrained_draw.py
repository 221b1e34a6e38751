"""Proposals that keep clear of what is forbidden, whatever the sampler knows of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from search.samplers.base import stream
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Problem

TRIES = 8


def obeying(problem: "Problem", number: int, ask_with: Callable[[int], Params], *, tries: int = TRIES) -> Params:
    """What `ask_with` answers to the seed of trial `number`.

    Where that is forbidden it is asked again with other seeds, and of the last answer as much is kept as can be.
    """
    params = ask_with(stream(problem.seed, number))
    for again in range(2, tries + 1):
        if problem.space.forbids(params) is None:
            return params
        params = ask_with(stream(problem.seed, number, again))
    if problem.space.forbids(params) is None:
        return params
    chance = np.random.default_rng((problem.seed, number)).random
    return problem.space.configurations.nearby(params, chance)
