"""QMC proposes the points of Optuna's sequence."""

from typing import Any

import pytest
from optuna.samplers import (
    QMCSampler,
)

from search.samplers import SamplerSpec
from tests.unit.search.samplers.optuna_comparison import MIXED, mixed, of_optuna, of_paceline, study_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


@pytest.mark.parametrize("options", [{}, {"scramble": True}, {"qmc_type": "halton"}], ids=str)
def test_qmc_proposes_the_points_of_optunas_sequence(options: dict[str, Any]) -> None:
    study = study_of(MIXED, SamplerSpec(sampler="qmc", options=options))
    # Optuna learns the space from its first trial, so its sequence begins with the second trial.
    theirs = of_optuna(
        study, 33, lambda _: QMCSampler(seed=study.seed, warn_independent_sampling=False, **options), mixed
    )
    assert of_paceline(study, 32) == theirs[1:]
