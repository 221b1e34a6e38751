"""Seeds of draws, and rejection of forbidden ones, for samplers that know nothing of forbidden combinations."""

from collections.abc import Callable, Sequence

import numpy as np

from search.space.space import Params, Space

MAX_DRAWS, MAX_MOVES = 8, 16


def derived_seed(seed: int, *numbers: int) -> int:
    """A seed of 32 bits for Optuna's samplers, such as that of one trial. Trials of a warm start number below 0."""
    return int(np.random.SeedSequence((seed, *(number % 2**32 for number in numbers))).generate_state(1)[0])


def constrained_draw(
    space: Space, seed: int, number: int, draw: Callable[[int], Params], *, max_draws: int = MAX_DRAWS
) -> Params:
    """An allowed configuration for trial `number`. `draw` takes a seed.

    A forbidden draw is repeated with other seeds. After `max_draws` the last draw is replaced by an allowed
    configuration that differs in one parameter, if `MAX_MOVES` find one; otherwise in few.
    """
    params = draw(derived_seed(seed, number))
    for again in range(2, max_draws + 1):
        if space.forbids(params) is None:
            return params
        params = draw(derived_seed(seed, number, again))
    entry = space.forbids(params)
    if entry is None:
        return params
    return _moved(space, params, sorted(space.forbidden[entry]), np.random.default_rng((seed, number)))


def _moved(space: Space, params: Params, movable: Sequence[str], random: np.random.Generator) -> Params:
    """Which parameter gives way is drawn: otherwise some sides of what is forbidden would hardly be tried."""
    for moved in random.permutation(movable).tolist():
        kept = {name: value for name, value in params.items() if name != moved}
        for _ in range(MAX_MOVES):
            found = space.configurations.nearby(kept, random.random)
            if kept.items() <= found.items():
                return found
    return space.configurations.nearby(params, random.random)
