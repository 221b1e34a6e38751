"""The lines of a log: text for a person at a terminal, or one JSON object each for a log collector."""

import json
import logging
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from trainer.process_log.context import log_context
from trainer.process_log.control_characters import escaped
from trainer.process_log.redaction import redacted

SHOWN_IN_TEXT = ("experiment", "trial", "attempt", "rank", "request")

MAX_MESSAGE, MAX_EXCEPTION = 4_000, 10_000
"""In bytes of JSON: container runtimes split lines of more than 16 kB, and half an object cannot be parsed."""


class TextLines(logging.Formatter):
    """Ends the first line with the ids that are bound.

    A message or an exception may quote what a caller has sent, so there are no control characters, and further lines
    are indented.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = log_context.fields()
        ids = " ".join(f"{name}={_in_one_line(fields[name])}" for name in SHOWN_IN_TEXT if name in fields)
        line = super().formatMessage(record)
        return f"{line} [{ids}]" if ids else line

    def format(self, record: logging.LogRecord) -> str:
        return escaped(redacted(super().format(record))).replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """A record's attribute `fields` has more fields for its own line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": _rfc_3339(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _start(redacted(_message(record)), MAX_MESSAGE),
        }
        for name, value in {**log_context.fields(), **getattr(record, "fields", {})}.items():
            line[name] = redacted(value) if isinstance(value, str) else value
        if record.exc_info:
            line["exception"] = _start(redacted(self.formatException(record.exc_info))[::-1], MAX_EXCEPTION)[::-1]
        return json.dumps(line, default=str)


def _rfc_3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    """The message, also if a library has logged it with the wrong arguments."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _start(text: str, size: int) -> str:
    """Return the longest beginning whose JSON takes at most `size` bytes; a character may take twelve."""
    start = text[:size]
    if _size(start) <= size:
        return start
    return start[: sum(end <= size for end in accumulate(map(_size, start)))]


def _size(text: str) -> int:
    return len(json.dumps(text)) - len('""')


def _in_one_line(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() else ascii(text)
