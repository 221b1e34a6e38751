"""Values and violations as Optuna's Gaussian processes can tell them apart.

Optuna standardizes them, but takes a deviation below 1e-10 for none, and squares overflow. Where losses differ by
orders of magnitude, a model of their logarithms knows the good ones from each other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from search.samplers.optuna.conversion import frozen_trial
from search.samplers.optuna.gp.losses import HUGE, Array, bounded

SPAN, SPAN_OF_DISTANCES, MIN_DRAWN = 10.0, 100.0, 4
"""The ratio of the quartiles of losses, or of their distances from the least one, from which the logarithms are
learned, and of how many losses at least. The distances of a bowl with two parameters often differ by 10.

They are those of the first draws: what a model finds is close to the best, so that also losses of a bowl, of which no
logarithm should be taken, differ more and more.
"""
UNIT_SHARE = 0.25
"""The share of all trials whose distances from the least loss, or from a constraint's limit, are below the unit, up to
which distances count by themselves and not by their logarithms. What is found later is closer, and so is the unit.
"""
TINY = 2.0**-24
"""Optuna takes a deviation below 1e-10 for none, also of values that are far from 0."""


def with_model_values(
    trials: Sequence[FrozenTrial], signs: NDArray[np.int_], offset: float | None = None, *, is_bounded: bool = False
) -> list[FrozenTrial]:
    """The completed trials with values and violations for the model; none if these tell nothing.

    They tell nothing if all are equal, or if all trials violate a constraint by the same amount.
    `signs` times the values of the objectives are losses. With `offset`, as of `log_offset`, it is added to the
    only one, and the logarithms are learned. With `is_bounded` what is learned is `bounded`.
    """
    values = np.array([trial.values for trial in trials])
    violations = np.array([list(trial.constraints.values()) for trial in trials])
    equal_violations = (violations == violations[0]).all(axis=0)
    if ((violations[0] > 0) & equal_violations).any() or (equal_violations.all() and _are_equal(values)):
        return []
    losses = with_logarithms(signs * values, offset)
    values = _scaled(_without_constant(signs * (bounded(losses) if is_bounded else losses)))
    violations = _scaled(_by_magnitude(_finite(violations)))
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


def log_offset(losses: Array, drawn: int) -> float | None:
    """What is added to losses before the logarithms, which tell the good ones from each other. None: losses count.

    It is 0 if the first `drawn` losses, which were drawn at random, are above 0 and differ by orders of magnitude. If
    only their distances from the least one do, as those of R², which is 1 at best, the logarithms are of distances.
    """
    first = losses[:drawn]
    first = first[np.isfinite(first)]
    if len(first) < MIN_DRAWN:
        return None
    if losses.min() > 0 and _quartiles_differ(first, SPAN):
        return 0.0
    finite = losses[np.isfinite(losses)]
    if np.abs(finite).max() > HUGE or not _quartiles_differ(first - first.min(), SPAN_OF_DISTANCES):
        return None
    distances = finite - finite.min()
    unit = np.quantile(distances, UNIT_SHARE, method="higher") or distances[distances > 0].min()
    return float(unit - finite.min())


def with_logarithms(losses: Array, offset: float | None) -> Array:
    """The logarithms of the losses with the offset of `log_offset`, or the losses if there is none."""
    return losses if offset is None else np.log(losses + offset)


def _quartiles_differ(amounts: Array, span: float) -> bool:
    low, high = np.quantile(amounts, [0.25, 0.75])
    return bool(low < high / span)


def _without_constant(columns: Array) -> Array:
    """Columns whose differences are tiny beside the values, from their least value on. The differences are exact."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    is_tiny = high / 2 - low / 2 < TINY * np.abs(low)
    return np.asarray(columns - np.where(is_tiny, low, 0.0))


def _by_magnitude(violations: Array) -> Array:
    """Logarithms of the sizes, where these differ by orders of magnitude.

    Otherwise all but the largest are alike for the model: the feasible ones, and those that are almost. The signs stay,
    and small sizes count by themselves.
    """
    found = violations.copy()
    for column in found.T:
        sizes = np.abs(column)
        above = sizes[sizes > 0]
        if len(above) >= MIN_DRAWN and _quartiles_differ(above, SPAN):
            column[:] = np.sign(column) * _log1p_of_quotient(sizes, np.quantile(above, UNIT_SHARE))
    return found


def _log1p_of_quotient(sizes: Array, unit: float) -> Array:
    """Holds where the quotient is no float, too."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(0.0, np.log(sizes) - np.log(unit)))


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
