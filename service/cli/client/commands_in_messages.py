"""The commands in place of the HTTP calls that the service's messages name."""

import json
import re
from collections.abc import Iterator
from typing import Any

_NAME = r"([^\s;,`]+)"
_CHANGE = re.compile(rf"PATCH /v1/experiments/{_NAME}(?: (\{{.*\}}))?")
_COMMANDS = (
    (re.compile(rf"GET /v1/trials/{_NAME}/checkpoints\b"), r"`paceline checkpoints \1`"),
    (re.compile(rf"GET /v1/trials/{_NAME}/logs\b"), "`paceline logs TRIAL`"),
    (re.compile(r"POST /v1/experiments/([^\s;,`/]+)/resume\b"), r"`paceline resume \1`"),
    (re.compile(r"GET /v1/experiments\b(?!/)"), "`paceline ls`"),
    (re.compile(r"GET /v1/agents\b(?!/)"), "`paceline doctor`"),
    (re.compile(r"`?POST /v1/packages\b`?"), "`paceline submit`"),
)


def with_commands(message: str) -> str:
    """A message of the service for a reader who has the command line."""
    message = _CHANGE.sub(_change, message)
    for call, command in _COMMANDS:
        message = call.sub(command, message)
    return message


def _change(call: re.Match[str]) -> str:
    """If the message has no merge patch, the call shows what the settings look like."""
    try:
        settings = [*_settings(json.loads(call[2]))] if call[2] else []
    except (ValueError, AttributeError):
        settings = []
    return f"`paceline change {call[1]} {' '.join(f'--set {one}' for one in settings or ['FIELD=VALUE'])}`"


def _settings(patch: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, part in patch.items():
        if isinstance(part, dict):
            yield from _settings(part, f"{path}{name}.")
        else:
            yield f"{path}{name}={json.dumps(part)}"
