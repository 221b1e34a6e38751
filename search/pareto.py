"""The Pareto front of trials with several objectives, and its hypervolume."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.problem import Direction, sign_of

MAX_HYPERVOLUME_OBJECTIVES = 3
"""With more objectives, the hypervolume of hundreds of trials takes seconds."""


def losses(values: Sequence[Sequence[float]], directions: Sequence[Direction]) -> NDArray[np.float64]:
    """One row for each trial; less is better in every column."""
    signs = [sign_of(direction) for direction in directions]
    return np.asarray(values, dtype=float).reshape(len(values), len(signs)) * signs


def dominates(one: Sequence[float], other: Sequence[float], directions: Sequence[Direction]) -> bool:
    """Whether `one` is better in at least one objective and worse in none."""
    signs = [sign_of(direction) for direction in directions]
    pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, one, other, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def pareto_front(values: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[int]:
    """The indexes of the values that no others dominate, ascending."""
    return [int(one) for one in np.flatnonzero(_on_front(losses(values, directions)))]


def front_numbers(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """For each row of losses, the front that it is on when those before are removed: 0 if no other row dominates it."""
    numbers = np.zeros(len(rows), dtype=np.intp)
    left, number = np.arange(len(rows)), 0
    while left.size:
        on_front = _on_front(rows[left])
        numbers[left[on_front]] = number
        left, number = left[~on_front], number + 1
    return numbers


def hypervolume(
    values: Sequence[Sequence[float]], directions: Sequence[Direction], reference: Sequence[float]
) -> float:
    """The volume that the values dominate, up to `reference`. Values worse than it in any objective do not count."""
    point = losses([reference], directions)[0]
    rows = losses(values, directions)
    return _volume(np.unique(rows[np.all(rows <= point, axis=1)], axis=0), point)


def _volume(rows: NDArray[np.float64], point: NDArray[np.float64]) -> float:
    """The volume between the rows and the point, in slices along the last of two or more objectives."""
    if not len(rows):
        return 0.0
    if len(point) == 2:  # noqa: PLR2004
        ordered = rows[np.argsort(rows[:, 0], kind="stable")]
        widths = np.diff(ordered[:, 0], append=point[0])
        return float(widths @ (point[1] - np.minimum.accumulate(ordered[:, 1])))
    ordered = rows[np.argsort(rows[:, -1], kind="stable")]
    depths = np.diff(ordered[:, -1], append=point[-1])
    slices = (depth * _volume(ordered[: index + 1, :-1], point[:-1]) for index, depth in enumerate(depths) if depth > 0)
    return float(sum(slices))


def _on_front(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether no other row dominates each."""
    if not len(rows):
        return np.zeros(0, dtype=bool)
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    on_front = _sweep(distinct) if rows.shape[1] == 2 else _peel(distinct)  # noqa: PLR2004
    return on_front[index.reshape(-1)]


def _sweep(distinct: NDArray[np.float64]) -> NDArray[np.bool_]:
    """For two objectives, rows sorted by the first: a row is on the front if it has a new minimum of the second."""
    records = np.minimum.accumulate(distinct[:, 1])
    return np.concatenate([[True], records[1:] < records[:-1]])


def _peel(distinct: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The row with the least sum of ranks is on the front. It and the rows that it dominates are removed; repeat."""
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in distinct.T])
    rows = np.argsort(ranks.sum(axis=0), kind="stable")
    left, count = ranks[:, rows], 0
    while count < len(rows):
        dominated = np.all(left[:, count + 1 :] >= left[:, count : count + 1], axis=0)
        if dominated.any():
            stays = np.concatenate([np.ones(count + 1, dtype=bool), ~dominated])
            left, rows = left[:, stays], rows[stays]
        count += 1
    on_front = np.zeros(len(distinct), dtype=bool)
    on_front[rows] = True
    return on_front
