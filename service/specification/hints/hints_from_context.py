"""What to write in place of a mistake, where what stands beside it in the specification says what was meant."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from search.mistakes import MISSING, UNKNOWN, Mistake
from search.samplers import SAMPLERS
from service.specification.hints.path_patterns import ANY, item_at, matches

_TYPES: Mapping[str, str] = {
    "uniform": "type: float",
    "loguniform": "type: float, log: true",
    "quniform": "type: float, step: …",
    "real": "type: float",
    "double": "type: float",
    "randint": "type: int",
    "integer": "type: int",
    "qrandint": "type: int, step: …",
    "lograndint": "type: int, log: true",
    "choice": "type: categorical, choices: […]",
    "grid_search": "type: categorical, choices: […]",
    "bool": "type: categorical, choices: [true, false]",
}
"""The distributions of other tuners."""
_TRIAL_NUMBERS = ("max_trials", "n_trials", "num_samples")
_NO_LIMITS = ("-1", "inf", ".inf", "infinity", "none", "null", "unlimited")
"""What other tuners have for any number of trials, and what else may be written for it, as text."""
_GRID = "in place of grid_search write {type: categorical, choices: […]}, and search: {sampler: grid}"


def with_context(mistake: Mistake, document: Mapping[str, Any]) -> Mistake:
    """The mistake with what its surroundings say; otherwise unchanged."""
    message = _message(mistake, document)
    return mistake if message is None else Mistake(mistake.path, message)


def _message(mistake: Mistake, document: Mapping[str, Any]) -> str | None:
    path = mistake.path
    parent = reduce(item_at, path[:-1], document)
    if not path or not isinstance(parent, Mapping):
        return None
    if path[-1] in _TRIAL_NUMBERS and path[:-1] in ((), ("limits",)):
        return _trial_number_message(mistake.message, str(path[-1]), parent)
    if matches(("space", ANY, "type"), path):
        return _type_message(mistake.message, parent)
    if matches(("search", ANY), path) and mistake.message == UNKNOWN:
        return _option_message(str(path[-1]), parent)
    return None


def _trial_number_message(message: str, name: str, parent: Mapping[str, Any]) -> str | None:
    """For a number without a limit that is not written as `max_trials: null`."""
    value = parent.get(name)
    is_meant = str(value).lower() in _NO_LIMITS and not (name == "max_trials" and value is None)
    advice = "any number of trials is limits.max_trials: null, beside another limit such as limits.max_seconds"
    return f"{message}; {advice}" if is_meant else None


def _type_message(message: str, parameter: Mapping[str, Any]) -> str | None:
    if message.startswith(MISSING) and "grid_search" in parameter:
        return f"{MISSING}: {_GRID}"
    ours = _TYPES.get(str(parameter.get("type")))
    return ours and f"{message}: write {{{ours}}}"


def _option_message(name: str, search: Mapping[str, Any]) -> str | None:
    """For an option of the sampler that is not under `options`."""
    sampler = search.get("sampler", "tpe")
    is_known = isinstance(sampler, str) and sampler in SAMPLERS and name in SAMPLERS[sampler].model_fields
    return f"is an option of {sampler}: write it under search.options" if is_known else None
