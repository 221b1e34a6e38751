"""The specification of a stored experiment."""

from service.spec.models import ExperimentSpec
from service.store.tables import ExperimentRow


def spec_of(experiment: ExperimentRow) -> ExperimentSpec:
    return ExperimentSpec.model_validate(experiment.spec)
