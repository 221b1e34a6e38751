"""Values and violations as Optuna's Gaussian processes can tell them apart.

Optuna standardizes them, but takes a deviation below 1e-10 for none, and squares overflow. Where losses differ by
orders of magnitude, a model of their logarithms knows the good ones from each other.
"""

from collections.abc import Sequence

import numpy as np
from optuna.trial import FrozenTrial

from search.samplers.optuna.conversion import frozen_trial
from search.samplers.optuna.gp.losses import Array

SPAN = 1000.0
"""The ratio of the largest loss to the least from which the logarithms are learned: a model of percentages is not."""


def with_model_values(trials: Sequence[FrozenTrial], sign: int | None) -> list[FrozenTrial]:
    """The completed trials with values and violations for the model; none if they are equal, which tells nothing.

    With a single objective, `sign` times its value is the loss.
    """
    values = np.array([trial.values for trial in trials])
    violations = np.array([list(trial.constraints.values()) for trial in trials])
    if _are_equal(values) and _are_equal(violations):
        return []
    values, violations = _scaled(values), _scaled(_finite(violations))
    if sign is not None:
        values = sign * _logarithms(sign * values)
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


def _logarithms(losses: Array) -> Array:
    """Of losses that are all above 0, if they differ by orders of magnitude; otherwise the losses."""
    least, largest = losses.min(), losses.max()
    return np.asarray(np.log(losses)) if 0 < least < largest / SPAN else losses
