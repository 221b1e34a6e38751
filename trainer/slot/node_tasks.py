"""What a slot reads and removes on the node of a worker: called there, as tasks of Ray's where that is another node."""

import os
import shutil
import tempfile
from pathlib import Path

from trainer.text import storable
from trainer.worker.oom_counter import oom_kills

REST_BYTES = 5_000_000


def read_last_words(positions: dict[str, int], oom_counter: str | None) -> tuple[str, int | None]:
    return read_rest(positions), oom_kills(oom_counter) if oom_counter else None


def read_rest(positions: dict[str, int]) -> str:
    """What each file holds from its position on; of very much, the end."""
    parts = []
    for path, position in positions.items():
        with Path(path).open("rb") as file:
            start = max(position, file.seek(0, os.SEEK_END) - REST_BYTES)
            if start > position:
                parts.append(f"[... {start - position} bytes left out ...]\n")
            file.seek(start)
            parts.append(storable(file.read().decode(errors="replace")))
    return "".join(parts)


def remove_folder(name: str) -> None:
    shutil.rmtree(Path(tempfile.gettempdir()) / name, ignore_errors=True)
