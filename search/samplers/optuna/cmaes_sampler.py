"""Optuna's CmaEsSampler with a given optimizer."""

import pickle
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers._lazy_random_state import LazyRandomState
from optuna.trial import FrozenTrial


class EvolvedCmaEsSampler(optuna.samplers.CmaEsSampler):
    """Samples with `optimizer`, a pickled optimizer of the library cmaes; None before the first generation."""

    def __init__(
        self, space: dict[str, BaseDistribution], optimizer: bytes | None, *, seed: int, **options: Any
    ) -> None:
        super().__init__(seed=seed, n_startup_trials=0, warn_independent_sampling=False, **options)
        self._space, self._optimizer, self._seed = space, optimizer, seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return self._space

    def evolved(self, solutions: list[tuple[np.ndarray, float]]) -> bytes:
        """The pickled optimizer after a generation: its trials' points, each with its loss."""
        optimizer = self._current_optimizer()
        optimizer.tell(solutions)
        return pickle.dumps(optimizer)

    def point_of(self, trial: FrozenTrial) -> np.ndarray:
        """The trial's params in the optimizer's coordinates."""
        params = {name: trial.params[name] for name in self._space}
        point: np.ndarray = self._transform.transform(params)
        if self._with_margin:
            # The point lies between the steps, and only asking again gives it. If another generation asked for the
            # trial, asking again gives other params, and the point of the params is used.
            optimizer = self._current_optimizer()
            optimizer._rng.seed(self._cma_rng.rng.randint(1, 2**16) + max(0, trial.number))  # noqa: SLF001
            encoded, raw = optimizer.ask()
            if self._transform.untransform(encoded) == params:
                return np.asarray(raw)
        return point

    @cached_property
    def _transform(self) -> _SearchSpaceTransform:
        return _SearchSpaceTransform(self._space, transform_step=not self._with_margin, transform_0_1=True)

    def _current_optimizer(self) -> Any:
        if self._optimizer is None:
            return self._init_optimizer(self._transform, optuna.study.StudyDirection.MINIMIZE)
        return pickle.loads(self._optimizer)  # noqa: S301 (pickled by this class)

    def _init_optimizer(self, trans: _SearchSpaceTransform, direction: optuna.study.StudyDirection) -> Any:
        optimizer = super()._init_optimizer(trans, direction)
        # Optuna has drawn a seed that is never used. A proposal's random numbers must not depend on that draw.
        self._cma_rng = LazyRandomState(self._seed)
        return optimizer

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:  # noqa: ARG002
        return None if self._optimizer is None else self._current_optimizer()
