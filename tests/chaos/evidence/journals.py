"""The journals: what the training functions recorded about themselves."""

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

RUN = re.compile(r"(?P<experiment>.+)-(?P<id>x-[0-9a-f]+)/trial-(?P<trial>\d+)-attempt-(?P<attempt>\d+)")

MAX_LINE_BYTES = 2000


@dataclass(frozen=True)
class Line:
    """One line of a rank. `at` is seconds since the epoch; `made` is the reported metric of that name.

    `saved`: the report has a checkpoint. `printed`: how many numbered lines the rank has printed by then.
    """

    at: float
    did: str
    step: int
    experiment_id: str
    trial: int
    attempt: int
    rank: int
    pid: int
    made: float | None = None
    uri: str | None = None
    sound: bool = True
    why: str | None = None
    saved: bool = False
    printed: int = 0


def read(directory: Path) -> list[Line]:
    """Return all complete lines, by time."""
    return sorted((line for file in directory.glob("*.jsonl") for line in _lines(file)), key=lambda line: line.at)


def last_lines(directory: Path, fresh_seconds: float = 10) -> list[Line]:
    """Return the last line of every rank that wrote within `fresh_seconds`."""
    since = time.time() - fresh_seconds
    files = [file for file in directory.glob("*.jsonl") if file.stat().st_mtime > since]
    return [line for line in map(_last_line, files) if line is not None]


def _last_line(file: Path) -> Line | None:
    with file.open("rb") as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
        whole = content.read().split(b"\n")[:-1]
    return _line(json.loads(whole[-1])) if whole else None


def _lines(file: Path) -> list[Line]:
    """Skip a last line without a newline: the process died while it wrote."""
    return [_line(json.loads(text)) for text in file.read_text().split("\n")[:-1]]


def _line(fields: dict[str, object]) -> Line:
    named = RUN.fullmatch(str(fields.pop("run")))
    if named is None:
        raise ValueError(f"not the name of an attempt's run: {fields}")
    whose = {"experiment_id": named["id"], "trial": int(named["trial"]), "attempt": int(named["attempt"])}
    return Line(**fields, **whose)  # type: ignore[arg-type]
