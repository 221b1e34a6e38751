"""How `gp` proposes with a model of learning curves, and Optuna's private names for Gaussian processes.

Beside `internals`, because importing this module imports torch. `internals_checks` tests that these names do what is
relied on. Without early stopping `gp` is Optuna's GPSampler, unchanged, as long as no trial has diverged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from optuna._gp.acqf import BaseAcquisitionFunc, LogCEI, LogEI, qLogCEI, qLogEI
from optuna._gp.gp import GPRegressor, fit_kernel_params
from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior
from optuna._gp.search_space import SearchSpace
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.samplers.optuna.gp.curve_points import stride
from search.samplers.optuna.gp.losses import Array, Flags, diverged, standardized

FULLY_TRAINED = 1.0
QMC_SAMPLES = 128
"""Of the values that running trials may end with; as many as in Optuna's GPSampler."""
MAX_QMC_SEED = 2**30
FAR = 10.0
"""With 3, losses of a function without any jump counted as diverged, and its least value was found later."""
MAX_LABELS = 200
"""Of trials that diverged or not. The time of a proposal grows with the cube of their number."""


@dataclass(frozen=True)
class Observed:
    """A row of `inputs`, from 0 to 1 with the level of training last, and a value for each point of the model.

    More is better. `diverged` has an entry for each trial.
    """

    inputs: Array
    values: Array
    diverged: Flags


class GpHooks(optuna.samplers.GPSampler):
    """Optuna's GPSampler, whose model has one more input: how far a trial has trained, up to FULLY_TRAINED.

    It proposes what is expected to be the best at the end, and not to diverge. A trial may be both completed, because
    its model knows values of it, and `still_running`, so that its value at the end is not known.
    """

    def observed(self, trials: Sequence[FrozenTrial], params: Array) -> Observed | None:
        """What the model learns from; None: from nothing. `params` has a row for each trial, from 0 to 1."""
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
        observed = self.observed(completed_trials, params)
        if observed is None:
            return {}
        model = self._fitted(space, observed.inputs, observed.values)
        expected = np.where(observed.diverged, -np.inf, _expected(model, _at_end(params)))
        running = [*running_trials, *self.still_running(completed_trials)]
        limits = self._limits(space, params, observed.diverged)
        acquisition = self._acquisition(model, float(expected.max()), space, running, limits)
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

    def _limits(self, space: SearchSpace, params: Array, has_diverged: Flags) -> dict[str, Any]:
        """The arguments by which an acquisition function avoids what diverges; none if nothing has."""
        if not has_diverged.any():
            return {}
        chosen = _some_of_both(has_diverged)
        labels = np.where(has_diverged[chosen], -1.0, 1.0)
        mean, deviation = labels.mean(), labels.std()
        model = self._fitted(space, _at_end(params[chosen]), (labels - mean) / deviation)
        return {"constraints_gpr_list": [model], "constraints_threshold_list": [-mean / deviation]}

    def _acquisition(
        self,
        model: GPRegressor,
        best: float,
        space: SearchSpace,
        running: Sequence[FrozenTrial],
        limits: dict[str, Any],
    ) -> BaseAcquisitionFunc:
        shared: dict[str, Any] = {"gpr": model, "search_space": space, "threshold": best, **limits}
        if not running:
            return LogCEI(**shared) if limits else LogEI(**shared)
        return (qLogCEI if limits else qLogEI)(
            **shared,
            n_qmc_samples=QMC_SAMPLES,
            qmc_seed=self._rng.rng.randint(MAX_QMC_SEED),
            normalized_params_of_running_trials=_at_end(
                space.get_normalized_params(list(running), [trial.params for trial in running])
            ),
        )


class DivergenceGpSampler(GpHooks):
    """Optuna's GPSampler, unchanged while no trial has diverged. Of those that report no number the value is infinite.

    For a single objective, of which `sign` times the value is the loss.
    """

    def __init__(self, sign: int, **options: Any) -> None:
        super().__init__(**options)
        self._sign = sign

    def still_running(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:  # noqa: ARG002
        return []

    def observed(self, trials: Sequence[FrozenTrial], params: Array) -> Observed | None:
        losses, has_diverged = self._losses(trials)
        if has_diverged.all():
            return None
        return Observed(_at_end(params[~has_diverged]), standardized(losses[~has_diverged]), has_diverged)

    def _sample_relative_impl(
        self,
        study: optuna.Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        any_diverged = self._losses(completed_trials)[1].any()
        propose = super()._sample_relative_impl if any_diverged else super(GpHooks, self)._sample_relative_impl
        return propose(study, completed_trials, running_trials, search_space)

    def _losses(self, trials: Sequence[FrozenTrial]) -> tuple[Array, Flags]:
        """With whether each trial has diverged."""
        losses = np.array([self._sign * trial.values[0] for trial in trials])
        return losses, diverged(losses, np.arange(len(losses)), FAR)


def _some_of_both(has_diverged: Flags) -> NDArray[np.intp]:
    """The indexes of at most MAX_LABELS, evenly spaced: half of them of trials that diverged, half of others."""
    parts = [np.flatnonzero(has_diverged), np.flatnonzero(~has_diverged)]
    return np.concatenate([part[:: stride(len(part), MAX_LABELS // 2)] for part in parts])


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
