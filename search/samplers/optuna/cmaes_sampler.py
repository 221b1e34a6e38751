"""Optuna's CmaEsSampler with a given optimizer."""

import pickle
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.samplers.optuna.internals import CmaEsHooks, SearchSpaceTransform


class EvolvedCmaEsSampler(CmaEsHooks):
    """Samples with `optimizer`, a pickled optimizer of the library cmaes; None before the first generation."""

    def __init__(
        self, space: dict[str, BaseDistribution], optimizer: bytes | None, *, seed: int, **options: Any
    ) -> None:
        super().__init__(seed=seed, n_startup_trials=0, warn_independent_sampling=False, **options)
        self._space, self._optimizer = space, optimizer

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return self._space

    def restored(self) -> Any | None:
        return None if self._optimizer is None else pickle.loads(self._optimizer)  # noqa: S301 (pickled by this class)

    def evolved(self, solutions: list[tuple[np.ndarray, float]]) -> bytes:
        """The pickled optimizer after a generation: its trials' points, each with its loss."""
        optimizer = self._current_optimizer()
        optimizer.tell(solutions)
        return pickle.dumps(optimizer)

    def point_of(self, trial: FrozenTrial, seed: int) -> np.ndarray:
        """The trial's params in the optimizer's coordinates. `seed` is that of the sampler that proposed the trial."""
        params = {name: trial.params[name] for name in self._space}
        point: np.ndarray = self._transform.transform(params)
        if self.with_margin:
            # The point lies between the steps, and only asking again gives it. If another generation asked for the
            # trial, asking again gives other params, and the point of the params is used.
            encoded, raw = self.asked_again(self._current_optimizer(), trial.number, seed)
            if self._transform.untransform(encoded) == params:
                return np.asarray(raw)
        return point

    @cached_property
    def _transform(self) -> SearchSpaceTransform:
        return SearchSpaceTransform(self._space, transform_step=not self.with_margin, transform_0_1=True)

    def _current_optimizer(self) -> Any:
        restored = self.restored()
        return self.new_optimizer(self._transform) if restored is None else restored
