"""From what a person writes on the command line to the documents that the API takes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class BadArgument(Exception):
    """What is written there cannot be meant."""


def patch_of(settings: Sequence[str]) -> dict[str, Any]:
    """Settings as `limits.max_trials=64` in one merge patch; where two disagree the last holds. Raises BadArgument."""
    patch: dict[str, Any] = {}
    for setting in settings:
        path, is_one, text = setting.partition("=")
        if not path or not is_one:
            raise BadArgument(f"must be FIELD=VALUE, as in limits.max_trials=64; not {setting!r}")
        *parents, field = path.split(".")
        place = patch
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[field] = _value(text)
    return patch


def document_in(argument: str) -> bytes:
    """What is written there, or what the file of that name has. Raises BadArgument."""
    if argument.lstrip().startswith(("{", "[")):
        return argument.encode(errors="replace")
    try:
        return Path(argument).read_bytes()
    except OSError as error:
        raise BadArgument(f'must be a file, or JSON as in {{"params": {{"lr": 0.1}}}}: {error}') from error


def _value(text: str) -> Any:
    """JSON, or else text: a name needs no quotes. A number that JSON cannot say is the service's to refuse, as text."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
