"""Which of several trials no other one beats in everything, and how much of the objectives' space they command."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.problem import Direction, sign_of

MOST_OBJECTIVES_FOR_HYPERVOLUME = 3
"""With more it takes seconds for a front of hundreds."""


def losses(values: Sequence[Sequence[float]], directions: Sequence[Direction]) -> NDArray[np.float64]:
    """One row for each trial, less is better in every column."""
    signs = [sign_of(direction) for direction in directions]
    return np.asarray(values, dtype=float).reshape(len(values), len(signs)) * signs


def beats(one: Sequence[float], other: Sequence[float], directions: Sequence[Direction]) -> bool:
    """In one objective at least, and without being worse in any."""
    signs = [sign_of(direction) for direction in directions]
    pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, one, other, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def pareto_front(values: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[int]:
    """The places of those that no other one beats, ascending."""
    if not values:
        return []
    distinct, place = np.unique(losses(values, directions), axis=0, return_inverse=True)
    on_front = _sweep(distinct) if len(directions) == 2 else _peel(distinct)  # noqa: PLR2004
    return [int(index) for index in np.flatnonzero(on_front[place.reshape(-1)])]


def hypervolume(
    values: Sequence[Sequence[float]], directions: Sequence[Direction], reference: Sequence[float]
) -> float:
    """The volume between `reference` and what the values dominate; what is worse than it somewhere adds nothing."""
    from optuna._hypervolume import compute_hypervolume  # noqa: PLC0415 - Optuna takes a second to import

    point = losses([reference], directions)[0]
    rows = losses(values, directions)
    rows = rows[np.all(rows <= point, axis=1)]
    return float(compute_hypervolume(rows, point)) if len(rows) else 0.0


def _sweep(distinct: NDArray[np.float64]) -> NDArray[np.bool_]:
    """For two objectives: in the order of the first, whoever sets a record in the second."""
    records = np.minimum.accumulate(distinct[:, 1])
    return np.concatenate([[True], records[1:] < records[:-1]])


def _peel(distinct: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whoever has the least sum of ranks is beaten by none; with it go all that it beats, and so on with the rest."""
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in distinct.T])
    places = np.argsort(ranks.sum(axis=0), kind="stable")
    left, count = ranks[:, places], 0
    while count < len(places):
        beaten = np.all(left[:, count + 1 :] >= left[:, count : count + 1], axis=0)
        if beaten.any():
            stays = np.concatenate([np.ones(count + 1, dtype=bool), ~beaten])
            left, places = left[:, stays], places[stays]
        count += 1
    on_front = np.zeros(len(distinct), dtype=bool)
    on_front[places] = True
    return on_front
