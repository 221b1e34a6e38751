"""The parsed specification of a stored experiment."""

from typing import Any

from service.runtime.caches.row_cache import RowCache
from service.specification.models import ExperimentSpec
from service.specification.stored_spec import parse_stored_spec
from service.store.tables import ExperimentRow

_parsed = RowCache[dict[str, Any], ExperimentSpec]()


def cache_spec(experiment: ExperimentRow, spec: ExperimentSpec) -> None:
    """Keeps the spec that the row was written from, so that it is not parsed again."""
    _parsed.put(experiment.id, experiment.spec, spec)


def spec_of(experiment: ExperimentRow) -> ExperimentSpec:
    """Every call needs it, so it is parsed once for each version. All callers share the result; do not modify it."""
    spec = _parsed.get(experiment.id, experiment.spec)
    if spec is None:
        spec = parse_stored_spec(experiment.spec)
        cache_spec(experiment, spec)
    return spec
