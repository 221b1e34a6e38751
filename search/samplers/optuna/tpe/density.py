"""The density of Optuna's Parzen estimators as one matrix product, instead of a pass over memory for each operation.

The logarithm of a kernel is a sum over parameters. For a categorical parameter a term is one of a few numbers; for a
float it is a polynomial of the value. So all terms together are a product of two matrices.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from search.samplers.optuna.internals import (
    KernelsOfCategories,
    KernelsOfLogs,
    KernelsOfNumbers,
    Mixture,
    log_gauss_mass,
    log_gauss_mass_unique,
    norm_pdf_log_constant,
    unique_inverse_2d,
)
from search.thread_safe_import import import_modules

Array = NDArray[np.float64]
_Continuous = KernelsOfNumbers | KernelsOfLogs

_MAX_SIGMAS = 8.5
"""If both ends of the range are this many sigmas away, the kernel's mass within the range rounds to 1."""


def log_density(mixture: Mixture, points: Array) -> Array:
    """The log density at each of the points, which have a column of Optuna's internal values for each parameter."""
    of_points: list[Array] = []
    of_kernels: list[Array] = []
    logs = np.log(mixture.weights)
    stepped: Array | float = 0.0
    for kernels, values in zip(mixture.distributions, points.T, strict=True):
        match kernels:
            case KernelsOfCategories():
                of_points.extend((values == choice).astype(float) for choice in range(kernels.weights.shape[1]))
                of_kernels.extend(np.log(kernels.weights).T)
            case KernelsOfNumbers() | KernelsOfLogs():
                value, constant, linear, square = _polynomial(kernels, values)
                of_points.extend((value, value**2))
                of_kernels.extend((linear, square))
                logs = logs + constant
            case _:
                stepped = stepped + _log_step_masses(kernels, values)
    product = np.array(of_points).T @ np.array(of_kernels) if of_points else 0.0
    density = _log_sum(product + logs + stepped)
    # Where this under- or overflows, Optuna's own computation may not.
    return density if np.isfinite(density).all() else mixture.log_pdf(points)


def _normal_distribution() -> Callable[[Array], Array]:
    """Imported with the first proposal, because SciPy takes longer to import than a service should take to start."""
    import_modules("scipy.special")
    from scipy.special import ndtr  # noqa: PLC0415

    return cast(Callable[[Array], Array], ndtr)


def _polynomial(kernels: _Continuous, values: Array) -> tuple[Array, Array, Array, Array]:
    """The values scaled to 0 to 1, and for each kernel the coefficients of its logarithm as a polynomial of them."""
    low, width = kernels.adapted_low, kernels.adapted_high - kernels.adapted_low
    value = ((np.log(values) if kernels.is_log else values) - low) / width
    mu, sigma = (kernels.mu - low) / width, kernels.sigma / width
    mass, ndtr = np.ones_like(mu), _normal_distribution()
    near = np.minimum(mu, 1 - mu) < _MAX_SIGMAS * sigma
    mass[near] = ndtr((1 - mu[near]) / sigma[near]) - ndtr(-mu[near] / sigma[near])
    square = -0.5 / sigma**2
    constant = square * mu**2 - np.log(mass * kernels.sigma) - norm_pdf_log_constant
    return value, constant, -2 * square * mu, square


def _log_step_masses(kernels: Any, values: Array) -> Array:
    """For a parameter with steps, where many kernels are equal."""
    value, of_point = np.unique(values, return_inverse=True)
    mu, sigma, of_kernel = unique_inverse_2d(kernels.mu, kernels.sigma)
    ends = np.array([value - kernels.step / 2, value + kernels.step / 2])
    first, last = np.log(ends) if kernels.is_log else ends
    mass = log_gauss_mass_unique((first[:, np.newaxis] - mu) / sigma, (last[:, np.newaxis] - mu) / sigma)
    whole = log_gauss_mass((kernels.adapted_low - mu) / sigma, (kernels.adapted_high - mu) / sigma)
    of_all: Array = (mass - whole)[np.ix_(of_point, of_kernel)]
    return of_all


def _log_sum(logs: Array) -> Array:
    most = logs.max(axis=1)
    most[np.isneginf(most)] = 0
    logs -= most[:, np.newaxis]
    summed: Array = np.log(np.exp(logs, out=logs).sum(axis=1)) + most
    return summed
