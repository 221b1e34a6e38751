"""The end of what a command has written, in which the cause of its failure stands."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from trainer.worker.logs.output_end import read_output_end

MAX_LINES = 20
MAX_CHARACTERS = 8000

STREAMS = (2, 1)
"""The descriptors of the worker's standard error and output, to which the command writes."""


def stream_sizes() -> dict[str, int]:
    """How much the files behind them have."""
    paths = (Path(os.path.realpath(f"/proc/self/fd/{descriptor}")) for descriptor in STREAMS)
    return {str(path): path.stat().st_size for path in paths if path.is_file()}


@dataclass(frozen=True)
class CommandOutput:
    """What is written to the worker's streams from now on."""

    positions: dict[str, int] = field(default_factory=stream_sizes)

    def end(self) -> str:
        """Return the end of the standard error or, if that is empty, of the output. It may have secrets."""
        ends = (_end_of(path, position) for path, position in self.positions.items())
        return next((text for text in ends if text.strip()), "")


def _end_of(path: str, position: int) -> str:
    """Empty for a log that has been removed meanwhile: the command's failure is what counts."""
    try:
        return read_output_end(path, position)
    except OSError:
        return ""


def last_lines(text: str) -> str:
    """Return the last lines that are not empty; of a line that a progress bar rewrites, its last state."""
    states = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    lines = [line for line in states if line.strip()][-MAX_LINES:]
    return "\n".join(lines)[-MAX_CHARACTERS:]
