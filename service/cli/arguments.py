"""Arguments of the command line as documents of the API."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any


class BadArgument(Exception):
    """An argument that cannot be read; the message says what it must look like."""


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MAX_DURATION = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """Read `90d`, `12h`, `30m` or `45s`. Raises BadArgument."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    length = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None
    if length is None or length > MAX_DURATION:
        raise BadArgument(f"must be a number with a unit, as in 90d, 12h, 30m or 45s; not {text!r}")
    return length


def merge_patch(settings: Sequence[str], example: str = "limits.max_trials=64") -> dict[str, Any]:
    """Return settings such as `limits.max_trials=64` as one merge patch (RFC 7396). Raises BadArgument.

    Of two conflicting settings the last one wins.
    """
    patch: dict[str, Any] = {}
    for setting in settings:
        path, has_value, text = setting.partition("=")
        if not path or not has_value:
            raise BadArgument(f"--set must be FIELD=VALUE, as in {example}; not {setting!r}")
        *parents, field = _names_in(path)
        parent = patch
        for name in parents:
            if not isinstance(parent.get(name), dict):
                parent[name] = {}
            parent = parent[name]
        parent[field] = _value(text)
    return patch


def patched(document: Any, patch: Any) -> Any:
    """Return the document with the merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result


def fields_of(patch: dict[str, Any], parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names that lead to each of a patch's innermost fields, from the outermost on."""
    for name, value in patch.items():
        if isinstance(value, dict) and value:
            yield from fields_of(value, (*parents, name))
        else:
            yield (*parents, name)


def path_text(names: Sequence[str]) -> str:
    """The path as `merge_patch` reads it."""
    return ".".join(f'"{name}"' if "." in name else name for name in names)


def read_document(argument: str) -> bytes:
    """Return the argument itself when it is JSON or YAML, otherwise the content of the file. Raises BadArgument."""
    if argument.lstrip().startswith(("{", "[")):
        return argument.encode(errors="replace")
    try:
        return Path(argument).read_bytes()
    except OSError as error:
        raise BadArgument(f'{argument!r} must be a file, or JSON as in {{"params": {{"lr": 0.1}}}}: {error}') from error


def _names_in(path: str) -> list[str]:
    """Of the fields from the outermost on. Names with dots have quotes: `space."model.lr".high`."""
    if not re.fullmatch(r'("[^"]+"|[^".]+)(\.("[^"]+"|[^".]+))*', path):
        raise BadArgument(f'--set must name a field as in limits.max_trials or space."model.lr".high; not {path!r}')
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([^".]+)', path)]


def _value(text: str) -> Any:
    """Parse JSON. Other text stays text, so that names need no quotes; so do NaN and infinity."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
