"""Reads values of arguments that several commands have: durations and documents."""

import re
from datetime import timedelta
from pathlib import Path


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


def read_document(argument: str) -> bytes:
    """Return the argument itself when it is JSON or YAML, otherwise the content of the file. Raises BadArgument."""
    if argument.lstrip().startswith(("{", "[")):
        return argument.encode(errors="replace")
    try:
        return Path(argument).read_bytes()
    except OSError as error:
        raise BadArgument(f'{argument!r} must be a file, or JSON as in {{"params": {{"lr": 0.1}}}}: {error}') from error
