"""The option `--set FIELD=VALUE` as a merge patch (RFC 7396)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from service.cli.argument_values import BadArgument


def patch_from(settings: Sequence[str], example: str = "limits.max_trials=64") -> dict[str, Any]:
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


def fields_of(patch: dict[str, Any], parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names that lead to each of a patch's innermost fields, from the outermost on."""
    for name, value in patch.items():
        if isinstance(value, dict) and value:
            yield from fields_of(value, (*parents, name))
        else:
            yield (*parents, name)


def path_text(names: Sequence[str]) -> str:
    """The path as `patch_from` reads it."""
    return ".".join(f'"{name}"' if "." in name else name for name in names)


def _names_in(path: str) -> list[str]:
    """The fields' names from the outermost on. Names with dots have quotes: `space."model.lr".high`."""
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
