"""The specification of a stored experiment."""

from collections import OrderedDict
from threading import Lock
from typing import Any

from service.spec.models import STORED, ExperimentSpec
from service.store.tables import ExperimentRow

MAX_SPECS = 2000

_parsed: OrderedDict[str, tuple[dict[str, Any], ExperimentSpec]] = OrderedDict()
_guard = Lock()


def spec_of(experiment: ExperimentRow) -> ExperimentSpec:
    """Parsed once for as long as it stays the same: every call asks for it, and nobody changes what it gives."""
    document, spec = _parsed.get(experiment.id, (None, None))
    if spec is not None and document == experiment.spec:
        return spec
    spec = ExperimentSpec.model_validate(experiment.spec, context=STORED)
    with _guard:
        _parsed[experiment.id] = experiment.spec, spec
        _parsed.move_to_end(experiment.id)
        while len(_parsed) > MAX_SPECS:
            _parsed.popitem(last=False)
    return spec
