"""How the search sees a trial of the service."""

import pytest

from service.domain.statuses import TrialStatus
from service.runtime.observations.observations import observation_of
from service.specification.models import ExperimentSpec
from service.store.tables import TrialRow
from tests.conftest import a_spec
from trainer.wire import FailureKind


@pytest.mark.parametrize("kind", FailureKind)
def test_failures_that_come_from_the_params_are_learned_from(kind: FailureKind) -> None:
    trial = TrialRow(number=3, params={"lr": 0.1}, status=TrialStatus.FAILED, failure_kind=kind, values=None)
    of_params = {FailureKind.DIVERGED, FailureKind.OUT_OF_MEMORY, FailureKind.USER_ERROR}
    observation = observation_of(ExperimentSpec.model_validate(a_spec()), trial)
    assert observation.status == ("diverged" if kind in of_params else "failed")
    assert observation.values is None


@pytest.mark.parametrize("kind", FailureKind)
def test_of_an_earlier_experiment_only_trials_that_diverged_are_learned_from(kind: FailureKind) -> None:
    trial = TrialRow(number=3, params={"lr": 0.1}, status=TrialStatus.FAILED, failure_kind=kind, values=None)
    spec = ExperimentSpec.model_validate(a_spec())
    status = "diverged" if kind is FailureKind.DIVERGED else "failed"
    assert observation_of(spec, trial, ran_under=spec).status == status
