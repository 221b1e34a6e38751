"""How `gp` proposes with a model of learning curves, and Optuna's private names for Gaussian processes.

Beside `internals`, because importing this module imports torch. `internals_checks` tests that these names do what is
relied on. Without early stopping `gp` is Optuna's GPSampler, unchanged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from optuna._gp.acqf import BaseAcquisitionFunc, LogEI, qLogEI
from optuna._gp.gp import GPRegressor, fit_kernel_params
from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior
from optuna._gp.search_space import SearchSpace
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

Array = NDArray[np.float64]

FULLY_TRAINED = 1.0
QMC_SAMPLES = 128
"""Of the values that running trials may end with; as many as in Optuna's GPSampler."""
MAX_QMC_SEED = 2**30


class GpHooks(optuna.samplers.GPSampler):
    """Optuna's GPSampler, whose model has one more input: how far a trial has trained, up to FULLY_TRAINED.

    It proposes what is expected to be the best at the end. A trial may be both completed, because its model knows
    values of it, and `still_running`, so that its value at the end is not known.
    """

    def observed(self, trials: Sequence[FrozenTrial], params: Array) -> tuple[Array, Array]:
        """The model's inputs and values, of which more is better. `params` has a row for each trial, from 0 to 1."""
        raise NotImplementedError

    def still_running(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        raise NotImplementedError

    def _sample_relative_impl(
        self,
        study: optuna.Study,  # noqa: ARG002
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        space = SearchSpace(search_space)
        params = space.get_normalized_params(completed_trials)
        inputs, values = self.observed(completed_trials, params)
        model = self._fitted(space, inputs, values)
        expected = _expected(model, _at_end(params))
        running = [*running_trials, *self.still_running(completed_trials)]
        acquisition = self._acquisition(model, float(expected.max()), space, running)
        best = params[np.argmax(expected), np.newaxis]
        return space.get_unnormalized_param(self._optimize_acqf(_AtEnd(acquisition, space), best))

    def _fitted(self, space: SearchSpace, inputs: Array, values: Array) -> GPRegressor:
        return fit_kernel_params(
            X=inputs,
            Y=values,
            is_categorical=np.append(space.is_categorical, False),
            log_prior=default_log_prior,
            minimum_noise=DEFAULT_MINIMUM_NOISE_VAR,
            deterministic_objective=self._deterministic,
        )

    def _acquisition(
        self, model: GPRegressor, best: float, space: SearchSpace, running: Sequence[FrozenTrial]
    ) -> BaseAcquisitionFunc:
        if not running:
            return LogEI(gpr=model, search_space=space, threshold=best)
        return qLogEI(
            gpr=model,
            search_space=space,
            threshold=best,
            n_qmc_samples=QMC_SAMPLES,
            qmc_seed=self._rng.rng.randint(MAX_QMC_SEED),
            normalized_params_of_running_trials=_at_end(
                space.get_normalized_params(list(running), [trial.params for trial in running])
            ),
        )


def _expected(model: GPRegressor, inputs: Array) -> Array:
    with torch.no_grad():
        found: Array = model.posterior(torch.from_numpy(inputs))[0].numpy()
    return found


class _AtEnd(BaseAcquisitionFunc):
    """An acquisition function as one of the params alone."""

    def __init__(self, of_points: BaseAcquisitionFunc, space: SearchSpace) -> None:
        super().__init__(of_points.length_scales[:-1], space)
        self._of_points = of_points

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        end = torch.full((*x.shape[:-1], 1), FULLY_TRAINED, dtype=x.dtype)
        return self._of_points.eval_acqf(torch.cat([x, end], dim=-1))


def _at_end(params: Array) -> Array:
    return np.column_stack([params, np.full(len(params), FULLY_TRAINED)])
