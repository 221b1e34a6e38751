"""Names of Ray Tune, Optuna and others for what a specification names differently."""

from collections.abc import Mapping

from search.mistakes import UNKNOWN, Mistake, Path
from service.specification.path_patterns import ANY, matches

_PARAMETER: Path = ("space", ANY)
_OBJECTIVE: Path = ("objectives", ANY)
_NAMES: Mapping[Path, str] = {
    (*_PARAMETER, "min"): "is called low here",
    (*_PARAMETER, "max"): "is called high here",
    (*_PARAMETER, "lower"): "is called low here",
    (*_PARAMETER, "upper"): "is called high here",
    (*_PARAMETER, "values"): "is called choices here",
    (*_PARAMETER, "distribution"): "is called type here: float, int or categorical",
    (*_OBJECTIVE, "mode"): "is called direction here: minimize or maximize",
    (*_OBJECTIVE, "goal"): "is called direction here: minimize or maximize",
    (*_OBJECTIVE, "name"): "is called metric here",
}
"""None of these is a field of the specification."""


def with_tuners_name(mistake: Mistake) -> Mistake:
    """For an unknown field with a name of another tuner, what to write instead; any other mistake unchanged."""
    if mistake.message != UNKNOWN:
        return mistake
    reason = next((one for pattern, one in _NAMES.items() if matches(pattern, mistake.path)), None)
    return mistake if reason is None else Mistake(mistake.path, reason)
