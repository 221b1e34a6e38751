"""Optuna's evaluators of importance, on our trials."""

import warnings
from collections.abc import Iterator, Sequence

from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances
from optuna.importance._base import BaseImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from search.analysis.importance import Evaluator
from search.problem import Direction
from search.samplers.optuna.conversion import distributions_of, frozen
from search.samplers.optuna.frozen_study import study_of
from search.space.parameters import coded
from search.space.space import Params, Space

TREES = 16

# That few trials had a conditional parameter is not news for the service's log.
warnings.filterwarnings("ignore", message="Some regimes for parameter|Target and region quantiles")


def importances(
    space: Space, direction: Direction, trials: Sequence[tuple[Params, float]], evaluator: Evaluator
) -> dict[str, float]:
    """By parameter, adding up to 1. The trials are configurations of the space, with their values."""
    study = study_of([direction], list(_frozen(space, trials)))
    found = get_param_importances(study, evaluator=_evaluator(evaluator))
    return {name: float(value) for name, value in found.items()}


def _evaluator(name: Evaluator) -> BaseImportanceEvaluator:
    return PedAnovaImportanceEvaluator() if name == "ped_anova" else FanovaImportanceEvaluator(n_trees=TREES, seed=0)


def _frozen(space: Space, trials: Sequence[tuple[Params, float]]) -> Iterator[FrozenTrial]:
    distributions = distributions_of(space)
    for number, (params, value) in enumerate(trials):
        yield frozen(
            number,
            TrialState.COMPLETE,
            params={name: coded(space.root[name], given) for name, given in params.items()},
            distributions={name: distributions[name] for name in params},
            values=[value],
        )
