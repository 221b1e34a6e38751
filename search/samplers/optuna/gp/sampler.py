"""How `gp` learns from learning curves and where trials diverge, and Optuna's private names for Gaussian processes.

Beside `internals`, because importing this module imports torch. `internals_checks` tests that these names do what is
relied on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from optuna._gp.acqf import BaseAcquisitionFunc, LogCEI, LogEI, LogPI, qLogCEI, qLogEI
from optuna._gp.gp import GPRegressor, fit_kernel_params
from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior
from optuna._gp.search_space import SearchSpace
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from search.problem import Problem
from search.samplers.estimate import Estimate, Estimating, nothing
from search.samplers.optuna.frozen_study import frozen_study
from search.samplers.optuna.frozen_trials import with_value
from search.samplers.optuna.gp.curve_points import stride
from search.samplers.optuna.gp.existence import Existence, existences_of, with_absent_values
from search.samplers.optuna.gp.losses import Array, Flags, are_huge, bounded, diverged
from search.samplers.optuna.gp.model_estimate import LossScale, ModelEstimate
from search.samplers.optuna.gp.model_space import ModelSteps, on_steps, without_steps
from search.samplers.optuna.gp.model_values import log_offset, with_logarithms, with_model_values
from search.samplers.optuna.gp.scalarized import is_scalarized, scalarized
from search.space.space import Params, Space

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

    More is better. `scale` tells the losses that the values stand for. `diverged` has an entry for each trial.
    """

    inputs: Array
    values: Array
    scale: LossScale | None
    diverged: Flags


class ContinuousGpSampler(optuna.samplers.GPSampler, Estimating):
    """Optuna's GPSampler, with a model in which numbers of many values are continuous.

    `space` may have conditions: of the params that it proposes, only those count that exist. The trials that it learns
    from have a value of every parameter, as `AbsentValues` adds them.
    """

    _expected: Callable[[], ModelEstimate | None] = staticmethod(nothing)
    """What the model expects of the newest proposal; None if it has not proposed one, or for several objectives."""
    _steps = ModelSteps({})
    _existences: Sequence[Existence] = ()

    def __init__(self, *, space: Space | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._space = space

    def estimate(self, problem: Problem, params: Params) -> Estimate | None:  # noqa: ARG002
        """In units of the objective."""
        expected = self._expected()
        return None if expected is None else expected.in_units_of_objective(problem.directions[0])

    def _sample_relative_impl(
        self,
        study: optuna.Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        self._begin(search_space)
        space = without_steps(search_space)
        return on_steps(search_space, super()._sample_relative_impl(study, completed_trials, running_trials, space))

    def _begin(self, search_space: Mapping[str, BaseDistribution]) -> None:
        self._steps = ModelSteps(search_space)
        self._existences = [] if self._space is None else existences_of(self._space, search_space)

    def _optimize_acqf(self, acqf: BaseAcquisitionFunc, best_params: Array | None) -> Array:
        acqf = _OfExisting(acqf, self._existences) if self._existences else acqf
        found: Array = super()._optimize_acqf(acqf, best_params)
        return self._steps.best_near(found, acqf.eval_acqf_no_grad)

    def _point(self, found: Array) -> torch.Tensor:
        """The proposal as a row of the model's inputs."""
        point = torch.from_numpy(found[np.newaxis])
        return with_absent_values(point, self._existences) if self._existences else point


class DivergenceGpSampler(ContinuousGpSampler):
    """A GPSampler with values that it can tell apart. Of trials that report no number a value is infinite.

    While all values are equal it draws at random: a model of them only sees that the corners are far from all trials.
    Where the volume's gain would take long, several objectives become one, by other weights for each proposal.
    It learns no values of trials that diverged. A second model learns where trials diverge: the probability that they
    do not is a factor of the acquisition function. Under conditions losses are `bounded`, because they jump from one
    branch to another; elsewhere the large ones show where a valley is.

    A single objective's improvement counts from the greatest expected value of a trial, not from the best observed one,
    which with noise is a lucky one: the plug-in in Picheny, Wagner and Ginsbourger, A benchmark of kriging-based infill
    criteria for noisy optimization, 2013, https://doi.org/10.1007/s00158-013-0919-4. Of a deterministic objective the
    observed value is the true one.
    """

    _not_diverging: BaseAcquisitionFunc | None = None
    _feasible: Flags | None = None
    """Of the trials that the model learns from, if its improvement counts from the best of their expected values."""
    _learned: tuple[Array, float | None] | None = None
    """The losses of these trials as the model learns them, and their `log_offset`; None with several objectives."""

    def _sample_relative_impl(
        self,
        study: optuna.Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        signs = np.array([1 if one is StudyDirection.MINIMIZE else -1 for one in study.directions])
        losses = signs * np.array([trial.values for trial in completed_trials])
        are_comparable = len(signs) == 1 and not any(trial.constraints for trial in completed_trials)
        has_diverged = _diverged(losses, are_comparable=are_comparable)
        if has_diverged.all():
            return {}
        others = [trial for trial, is_out in zip(completed_trials, has_diverged, strict=True) if not is_out]
        offset = log_offset(losses[:, 0], self._n_startup_trials) if len(signs) == 1 else None
        if is_scalarized(len(others), len(signs)):
            study, others = self._scalarized(others, losses[~has_diverged])
            signs = np.array([1])
        is_bounded = are_comparable and self._space is not None and bool(self._space.conditional)
        known = with_model_values(others, signs, offset, is_bounded=is_bounded)
        if not known:
            return {}
        space = SearchSpace(search_space)
        self._not_diverging = self._limit(space, space.get_normalized_params(completed_trials), has_diverged)
        self._feasible = None if self._deterministic or losses.shape[1] > 1 else _are_feasible(known)
        if losses.shape[1] == 1 and not are_huge(losses[~has_diverged]):
            learned = with_logarithms(losses[~has_diverged, 0], offset)
            self._learned = bounded(learned) if is_bounded else learned, offset
        return super()._sample_relative_impl(study, known, running_trials, search_space)

    def _scalarized(self, trials: Sequence[FrozenTrial], losses: Array) -> tuple[optuna.Study, list[FrozenTrial]]:
        """The trials with one value, which is minimized, and a study of one objective."""
        weights = self._rng.rng.dirichlet(np.ones(losses.shape[1]))
        values = scalarized(losses, weights, self._n_startup_trials)
        return frozen_study(["minimize"], ()), [
            with_value(trial, value) for trial, value in zip(trials, values.tolist(), strict=True)
        ]

    def _optimize_acqf(self, acqf: BaseAcquisitionFunc, best_params: Array | None) -> Array:
        if self._feasible is not None and self._feasible.any():
            best_params = self._count_from_best_expected(_improvement_in(acqf), self._feasible)
        limited = acqf if self._not_diverging is None else _Product([acqf, self._not_diverging])
        found = super()._optimize_acqf(limited, best_params)
        if self._learned is not None:
            self._expected = partial(self._estimated, found, _improvement_in(acqf), *self._learned)
        return found

    def _estimated(
        self, found: Array, improvement: LogEI | qLogEI, losses: Array, offset: float | None
    ) -> ModelEstimate | None:
        [model] = self._gprs_cache_list or []
        scale = LossScale.of(model._y_train.numpy()[:, 0], losses, offset)  # noqa: SLF001
        if scale is None:
            return None
        return ModelEstimate.of(model, self._point(found), improvement._threshold, scale)  # noqa: SLF001

    def _count_from_best_expected(self, improvement: LogEI | qLogEI, feasible: Flags) -> Array:
        """Change its threshold. Returns the params of the best, in a row."""
        [model] = self._gprs_cache_list or []
        inputs: Array = model._X_train.numpy()[feasible]  # noqa: SLF001
        expected = _expected(model, inputs)
        improvement._threshold = float(expected.max())  # noqa: SLF001
        return inputs[np.argmax(expected), np.newaxis]

    def _limit(self, space: SearchSpace, params: Array, has_diverged: Flags) -> BaseAcquisitionFunc | None:
        """The logarithm of the probability that a trial does not diverge; None if none has."""
        if not has_diverged.any():
            return None
        chosen = _some_of_both(has_diverged)
        labels = np.where(has_diverged[chosen], -1.0, 1.0)
        mean, deviation = labels.mean(), labels.std()
        model = self._fitted(params[chosen], (labels - mean) / deviation, space.is_categorical)
        return LogPI(model, space, -mean / deviation)

    def _fitted(self, inputs: Array, values: Array, is_categorical: Flags) -> GPRegressor:
        return fit_kernel_params(
            X=inputs,
            Y=values,
            is_categorical=is_categorical,
            log_prior=default_log_prior,
            minimum_noise=DEFAULT_MINIMUM_NOISE_VAR,
            deterministic_objective=self._deterministic,
        )


class LevelGpSampler(DivergenceGpSampler):
    """A GPSampler whose model has one more input: how far a trial has trained, up to FULLY_TRAINED.

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
        self._begin(search_space)
        space = SearchSpace(without_steps(search_space))
        params = space.get_normalized_params(completed_trials)
        observed = self.observed(completed_trials, params)
        if observed is None:
            return {}
        model = self._fitted(observed.inputs, observed.values, np.append(space.is_categorical, False))
        expected = np.where(observed.diverged, -np.inf, _expected(model, _at_end(params)))
        running = [*running_trials, *self.still_running(completed_trials)]
        self._not_diverging = self._limit(space, params, observed.diverged)
        acquisition = _AtEnd(self._acquisition(model, float(expected.max()), space, running), space)
        best = params[np.argmax(expected), np.newaxis]
        found = self._optimize_acqf(acquisition, best)
        if observed.scale is not None:
            at_end = torch.from_numpy(_at_end(self._point(found).numpy()))
            self._expected = partial(ModelEstimate.of, model, at_end, float(expected.max()), observed.scale)
        return on_steps(search_space, space.get_unnormalized_param(found))

    def _acquisition(
        self, model: GPRegressor, best: float, space: SearchSpace, running: Sequence[FrozenTrial]
    ) -> BaseAcquisitionFunc:
        if not running:
            return LogEI(model, space, best)
        return qLogEI(
            model,
            space,
            best,
            n_qmc_samples=QMC_SAMPLES,
            qmc_seed=self._rng.rng.randint(MAX_QMC_SEED),
            normalized_params_of_running_trials=_at_end(
                space.get_normalized_params(list(running), [trial.params for trial in running])
            ),
        )


def _diverged(losses: Array, *, are_comparable: bool) -> Flags:
    """If there are several objectives or constraints, only trials that report no number count.

    An objective that varies by orders of magnitude is common then, and feasible trials may be the expensive ones.
    """
    if are_comparable:
        return diverged(losses[:, 0], FAR)
    return np.asarray(~np.isfinite(losses).all(axis=1))


def _are_feasible(trials: Sequence[FrozenTrial]) -> Flags:
    return np.array([all(violation <= 0 for violation in trial.constraints.values()) for trial in trials])


def _improvement_in(acquisition: BaseAcquisitionFunc) -> LogEI | qLogEI:
    """The factor of an acquisition function of one objective that has the threshold."""
    found = acquisition._acqf if isinstance(acquisition, LogCEI | qLogCEI) else acquisition  # noqa: SLF001
    if not isinstance(found, LogEI | qLogEI):
        raise TypeError(f"{type(found).__name__} is no expected improvement")
    return found


def _some_of_both(has_diverged: Flags) -> NDArray[np.intp]:
    """The indexes of at most MAX_LABELS, evenly spaced: half of them of trials that diverged, half of others."""
    parts = [np.flatnonzero(has_diverged), np.flatnonzero(~has_diverged)]
    return np.concatenate([part[:: stride(len(part), MAX_LABELS // 2)] for part in parts])


def _expected(model: GPRegressor, inputs: Array) -> Array:
    with torch.no_grad():
        found: Array = model.posterior(torch.from_numpy(inputs))[0].numpy()
    return found


class _Product(BaseAcquisitionFunc):
    """The product of acquisition functions, which are logarithms."""

    def __init__(self, factors: Sequence[BaseAcquisitionFunc]) -> None:
        super().__init__(np.mean([one.length_scales for one in factors], axis=0), factors[0].search_space)
        self._factors = factors

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([one.eval_acqf(x) for one in self._factors]).sum(dim=0)


class _OfExisting(BaseAcquisitionFunc):
    """An acquisition function of the parameters that exist: at each point, the others have their absent values."""

    def __init__(self, of_all: BaseAcquisitionFunc, existences: Sequence[Existence]) -> None:
        super().__init__(of_all.length_scales, of_all.search_space)
        self._of_all, self._existences = of_all, existences

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        return self._of_all.eval_acqf(with_absent_values(x, self._existences))


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
