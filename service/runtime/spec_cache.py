"""The specification of a stored experiment."""

from typing import Any

from service.runtime.row_cache import Remembered
from service.specification.models import STORED, ExperimentSpec
from service.store.tables import ExperimentRow

_parsed = Remembered[dict[str, Any], ExperimentSpec]()


def spec_of(experiment: ExperimentRow) -> ExperimentSpec:
    """Parsed once for as long as it stays the same: every call asks for it, and nobody changes what it gives."""
    spec = _parsed.get(experiment.id, experiment.spec)
    if spec is None:
        spec = ExperimentSpec.model_validate(experiment.spec, context=STORED)
        _parsed.put(experiment.id, experiment.spec, spec)
    return spec
