"""Placeholders in a command's arguments: `{params.lr}`, `{config.epochs}`, and `{params.momentum:0}` with a default.

Both sides use this: the service checks the names when an experiment is submitted, and the slot fills in the values.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLACEHOLDER = re.compile(r"\{(params|config)\.([^{}:]+)(?::([^{}]*))?\}")


@dataclass(frozen=True)
class Placeholder:
    """`source` is `params` or `config`; `default` stands for a parameter that a configuration does not have."""

    source: str
    name: str
    default: str | None


def placeholders(argument: str) -> Iterator[Placeholder]:
    for found in PLACEHOLDER.finditer(argument):
        yield Placeholder(*found.groups())


def filled_in(command: Sequence[str], params: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the arguments with values: text as it is, everything else as JSON. Other braces stay as they are."""
    values = {"params": params, "config": config}

    def value(found: re.Match[str]) -> str:
        source, name, default = found.groups()
        if name not in values[source]:
            return default or ""
        known = values[source][name]
        return known if isinstance(known, str) else json.dumps(known)

    return [PLACEHOLDER.sub(value, argument) for argument in command]
