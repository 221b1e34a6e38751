"""Simulated annealing as a module of OptunaHub, in its layout: `package/samplers/NAME/__init__.py`.

It looks only at the study's trials. A sampler that remembers something else would propose other params after a restart.
"""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState


class AnnealingSampler(optuna.samplers.BaseSampler):
    def __init__(self, *, seed: int, temperature: float, neighbourhood: float) -> None:
        self._random = np.random.default_rng(seed)
        self._independent = optuna.samplers.RandomSampler(seed=seed)
        self._temperature, self._neighbourhood = temperature, neighbourhood

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        space = optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False))
        return {name: one for name, one in space.items() if not one.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        current = self._current(study)
        if current is None:
            return {}
        return {name: self._near(current.params[name], one) for name, one in search_space.items()}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _current(self, study: optuna.Study) -> FrozenTrial | None:
        """One of the completed trials: the better, the more likely, and more so the more there are."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not trials:
            return None
        sign = -1 if study.direction is optuna.study.StudyDirection.MAXIMIZE else 1
        losses = np.array([sign * (trial.value or 0.0) for trial in trials])
        weights = np.exp(-(losses - losses.min()) / (self._temperature / len(trials)))
        return trials[int(self._random.choice(len(trials), p=weights / weights.sum()))]

    def _near(self, value: Any, distribution: BaseDistribution) -> Any:
        if isinstance(distribution, CategoricalDistribution):
            stays = self._random.random() > self._neighbourhood
            return value if stays else self._random.choice(np.array(distribution.choices)).item()
        low, high, log = (getattr(distribution, name) for name in ("low", "high", "log"))
        first, last, at = (np.log([low, high, value]) if log else np.array([low, high, value])).tolist()
        moved = np.clip(at + self._random.normal() * self._neighbourhood * (last - first), first, last)
        wanted = float(np.clip(np.exp(moved) if log else moved, low, high))
        step = getattr(distribution, "step", None)
        return distribution.to_external_repr(wanted if step is None else low + round((wanted - low) / step) * step)
