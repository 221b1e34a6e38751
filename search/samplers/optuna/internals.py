"""Optuna's private names that Paceline relies on, with `gp.sampler`. No other module uses one.

`internals_checks` tests that each does what is relied on. Where it does not, the samplers use Optuna's public classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna._transform import _SearchSpaceTransform as SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers._lazy_random_state import LazyRandomState
from optuna.samplers._tpe._truncnorm import _log_gauss_mass as log_gauss_mass
from optuna.samplers._tpe._truncnorm import _norm_pdf_logC as norm_pdf_log_constant
from optuna.samplers._tpe.parzen_estimator import EPS, _ParzenEstimator
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimatorParameters as ParzenEstimatorParameters
from optuna.samplers._tpe.probability_distributions import _BatchedCategoricalDistributions as KernelsOfCategories
from optuna.samplers._tpe.probability_distributions import _BatchedDistributions as Kernels
from optuna.samplers._tpe.probability_distributions import _BatchedTruncLogNormDistributions as KernelsOfLogs
from optuna.samplers._tpe.probability_distributions import _BatchedTruncNormDistributions as KernelsOfNumbers
from optuna.samplers._tpe.probability_distributions import _log_gauss_mass_unique as log_gauss_mass_unique
from optuna.samplers._tpe.probability_distributions import _MixtureOfProductDistribution as Mixture
from optuna.samplers._tpe.probability_distributions import _unique_inverse_2d as unique_inverse_2d
from optuna.samplers._tpe.sampler import (
    _split_complete_trials_multi_objective as split_complete_trials_multi_objective,
)
from optuna.samplers._tpe.sampler import default_gamma, default_gamma_multiobjective, default_weights
from optuna.search_space.group_decomposed import _SearchSpaceGroup as SearchSpaceGroup
from optuna.trial import FrozenTrial

__all__ = [
    "EPS",
    "GP_MODULES",
    "CmaEsHooks",
    "Kernels",
    "KernelsOfCategories",
    "KernelsOfLogs",
    "KernelsOfNumbers",
    "LazyRandomState",
    "Mixture",
    "ParzenEstimator",
    "ParzenEstimatorParameters",
    "QmcHooks",
    "SearchSpaceGroup",
    "SearchSpaceTransform",
    "default_gamma",
    "default_gamma_multiobjective",
    "default_weights",
    "log_gauss_mass",
    "log_gauss_mass_unique",
    "mixture_of",
    "norm_pdf_log_constant",
    "split_complete_trials_multi_objective",
    "unique_inverse_2d",
]

Array = NDArray[np.float64]

GP_MODULES = (
    "scipy.stats",
    "torch",
    "torch.utils._device",
    "optuna._gp.acqf",
    "optuna._gp.batched_lbfgsb",
    "optuna._gp.gp",
    "optuna._gp.optim_mixed",
    "optuna._gp.prior",
    "optuna._gp.search_space",
)
"""The modules that Optuna's GPSampler imports when it first proposes."""


class ParzenEstimator(_ParzenEstimator):
    """Optuna's Parzen estimator, with a hook for the kernels of a parameter."""

    def kernels(
        self, observations: Array, name: str, space: BaseDistribution, parameters: ParzenEstimatorParameters
    ) -> Kernels:
        """The kernels of the parameter `name` at its observed values."""
        return super()._calculate_distributions(observations, name, space, parameters)

    def _calculate_distributions(
        self,
        observations: Array,
        param_name: str,
        search_space: BaseDistribution,
        parameters: ParzenEstimatorParameters,
    ) -> Kernels:
        return self.kernels(observations, param_name, search_space, parameters)


class QmcHooks(optuna.samplers.QMCSampler):
    """Optuna's QMCSampler at the point of its sequence that is given, instead of one counted by the study."""

    def __init__(self, *, index: int, **options: Any) -> None:
        super().__init__(**options)
        self._index = index

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:  # noqa: ARG002
        return self._index


def mixture_of(estimator: ParzenEstimator) -> Mixture:
    return estimator._mixture_distribution  # noqa: SLF001


class CmaEsHooks(optuna.samplers.CmaEsSampler):
    """Optuna's CmaEsSampler, with a hook for its optimizer, which is one of the library cmaes."""

    def __init__(self, *, seed: int, **options: Any) -> None:
        super().__init__(seed=seed, **options)
        self._seed = seed

    def restored(self) -> Any | None:
        """The optimizer to sample with; None for a new one."""
        raise NotImplementedError

    def new_optimizer(self, transform: SearchSpaceTransform) -> Any:
        return self._init_optimizer(transform, optuna.study.StudyDirection.MINIMIZE)

    def asked_again(self, optimizer: Any, number: int, seed: int) -> Any:
        """What the optimizer gives as trial `number` in a sampler with this seed."""
        optimizer._rng.seed(LazyRandomState(seed).rng.randint(1, 2**16) + max(0, number))  # noqa: SLF001
        return optimizer.ask()

    @property
    def with_margin(self) -> bool:
        return self._with_margin

    def _init_optimizer(self, trans: SearchSpaceTransform, direction: optuna.study.StudyDirection) -> Any:
        optimizer = super()._init_optimizer(trans, direction)
        # Optuna has drawn a seed that is never used. A proposal's random numbers must not depend on that draw.
        self._cma_rng = LazyRandomState(self._seed)
        return optimizer

    def _restore_optimizer(self, completed_trials: Sequence[FrozenTrial]) -> Any:  # noqa: ARG002
        return self.restored()
