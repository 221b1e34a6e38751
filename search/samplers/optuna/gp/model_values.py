"""Values and violations as Optuna's Gaussian processes can tell them apart.

Optuna standardizes them, but takes a deviation below 1e-10 for none, and squares overflow. Where losses differ by
orders of magnitude, a model of their logarithms knows the good ones from each other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from search.samplers.optuna.conversion import frozen_trial
from search.samplers.optuna.gp.losses import Array

SPAN, MIN_DRAWN = 10.0, 4
"""The ratio of the quartiles of losses from which the logarithms are learned, and of how many losses at least.

They are those of the first draws: what a model finds is close to the best, so that also losses of a bowl, of which no
logarithm should be taken, differ more and more.
"""


def with_model_values(
    trials: Sequence[FrozenTrial], signs: NDArray[np.int_], *, by_logarithm: bool
) -> list[FrozenTrial]:
    """The completed trials with values and violations for the model; none if these tell nothing.

    They tell nothing if all are equal, or if all trials violate a constraint by the same amount.
    `signs` times the values of the objectives are losses, of which the logarithms may be taken.
    """
    values = np.array([trial.values for trial in trials])
    violations = np.array([list(trial.constraints.values()) for trial in trials])
    equal_violations = (violations == violations[0]).all(axis=0)
    if ((violations[0] > 0) & equal_violations).any() or (equal_violations.all() and _are_equal(values)):
        return []
    values = _scaled(signs * np.log(signs * values) if by_logarithm else values)
    violations = _scaled(_finite(violations))
    return [
        frozen_trial(
            trial.number,
            trial.state,
            params=trial.params,
            distributions=trial.distributions,
            values=value,
            constraints=violation,
        )
        for trial, value, violation in zip(trials, values.tolist(), violations.tolist(), strict=True)
    ]


def differ_by_magnitudes(losses: Array, drawn: int) -> bool:
    """Whether the first ones do, which were drawn at random, so that all should count by their logarithms."""
    first = losses[:drawn]
    first = first[np.isfinite(first)]
    if len(first) < MIN_DRAWN or losses.min() <= 0:
        return False
    low, high = np.quantile(first, [0.25, 0.75])
    return bool(low < high / SPAN)


def _are_equal(columns: Array) -> bool:
    return bool(np.all(columns == columns[0]))


def _scaled(columns: Array) -> Array:
    """Each by a power of two, which changes no digits, so that the largest is between 0.5 and 1."""
    if not columns.size:
        return columns
    _, exponents = np.frexp(np.abs(columns).max(axis=0))
    return np.asarray(np.ldexp(columns, -exponents))


def _finite(violations: Array) -> Array:
    """An infinite one is as large as the largest of the others, whatever their signs."""
    sizes = np.abs(np.where(np.isfinite(violations), violations, 0.0)).max(axis=0, initial=0.0)
    return np.asarray(np.minimum(violations, np.where(sizes > 0, sizes, 1.0)))
