"""What a slot reads and removes on the node of a worker, by `run_on_node`."""

import os
from pathlib import Path

from trainer.storable_values import storable_text
from trainer.worker.event_files import keep_event_files
from trainer.worker.process_end.oom_counter import read_oom_kills
from trainer.worker.process_end.own_end import OwnEnd, read_own_end
from trainer.worker.user_code.working_directory import remove as remove_directory

MAX_REST_BYTES = 50_000_000


def read_remains(
    began: dict[str, int], positions: dict[str, int], oom_counter: str | None, exit_file: str | None
) -> tuple[str, int | None, OwnEnd | None]:
    """What a dead worker has left: the rest of its log, the count of its OOM counter, and how it ended itself.

    `began` has where its output of this attempt begins, `positions` how far it is known.
    """
    return read_rest(positions), read_oom_kills(oom_counter), read_own_end(exit_file, began)


def read_rest(positions: dict[str, int]) -> str:
    """The text of each file after its position; at most the last MAX_REST_BYTES of it."""
    parts = []
    for path, position in positions.items():
        with Path(path).open("rb") as file:
            start = max(position, file.seek(0, os.SEEK_END) - MAX_REST_BYTES)
            if start > position:
                parts.append(f"[paceline: {start - position:,} bytes of output before this are left out]\n")
            file.seek(start)
            parts.append(storable_text(file.read().decode(errors="replace")))
    return "".join(parts)


def remove_working_directory(directory: str, event_files: str | None) -> None:
    """Remove what killed workers have left, and keep their event files at this URI, if there is one."""
    if event_files is not None:
        keep_event_files(Path(directory), event_files)
    remove_directory(Path(directory))
