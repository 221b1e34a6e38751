"""The end of a process's output, in which the cause of its death stands."""

import os
from pathlib import Path

MAX_BYTES = 1_000_000
"""How much is read at most."""


def read_output_end(path: str, position: int) -> str:
    """What was written after the position in bytes, or the last `MAX_BYTES` of it."""
    with Path(path).open("rb") as file:
        file.seek(max(position, file.seek(0, os.SEEK_END) - MAX_BYTES))
        return file.read().decode(errors="replace")
