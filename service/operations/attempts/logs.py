"""The output of each rank, as files: `logs/<trial>/<attempt>/rank-<rank>.log`."""

import os
import re
from pathlib import Path
from typing import BinaryIO

from search.mistakes import Mistake
from service.errors import InsufficientStorage, Invalid
from service.operations.attempts.leases import check_lease
from service.runtime.context import Context
from trainer.wire import LogChunk

MAX_GAP_BYTES = 50_000_000
"""A sender may have dropped output, so gaps are allowed; but a wrong offset must not make a file of terabytes."""

BLOCK_BYTES = 256_000


def store_log(context: Context, trial_id: str, token: str | None, chunk: LogChunk) -> None:
    """Write a chunk at its offset; a repeat is harmless.

    Raises LeaseLost, Unauthorized, Invalid, InsufficientStorage.
    """
    with context.database.read() as session:
        attempt = check_lease(session, trial_id, token).number
    path = _directory(context, trial_id, attempt) / f"rank-{chunk.rank}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            size = file.seek(0, os.SEEK_END)
            if chunk.offset > size + MAX_GAP_BYTES:
                raise Invalid([Mistake(("offset",), f"is far beyond the {size} bytes that came before it")])
            file.seek(chunk.offset)
            file.write(chunk.text.encode())
    except OSError as error:
        raise InsufficientStorage(f"the log could not be written: {error.strerror}") from error


class Log:
    """Reads the log files of an attempt, of one rank or of all; each read continues where the last one ended.

    With `tail`, reading starts at the last lines of each existing file. Without `rank`, each line names its rank.
    """

    def __init__(
        self, context: Context, trial_id: str, attempt: int, *, rank: int | None = None, tail: int | None = None
    ) -> None:
        self._directory = _directory(context, trial_id, attempt)
        self._rank = rank
        self._offsets = {} if tail is None else {path: _start_of_tail(path, tail) for _, path in self._files()}

    def read(self, *, whole_lines: bool) -> str:
        """Return the next part, empty if there is none. `whole_lines`: leave out a last line that may still grow."""
        for rank, path in self._files():
            if part := self._read(path, whole_lines=whole_lines):
                text = part.decode(errors="replace")
                return text if self._rank is not None else _with_rank(rank, text)
        return ""

    def _read(self, path: Path, *, whole_lines: bool) -> bytes:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            part = file.read(BLOCK_BYTES)
        if whole_lines or len(part) == BLOCK_BYTES:
            end = max(part.rfind(b"\n"), part.rfind(b"\r")) + 1  # progress bars end their lines with \r
            part = part[:end] if end or len(part) < BLOCK_BYTES else part
        self._offsets[path] = offset + len(part)
        return part

    def _files(self) -> list[tuple[int, Path]]:
        """(rank, file), by rank."""
        found = [(int(path.stem.removeprefix("rank-")), path) for path in self._directory.glob("rank-*.log")]
        return sorted(entry for entry in found if self._rank is None or entry[0] == self._rank)


def _with_rank(rank: int, text: str) -> str:
    return "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())


def _start_of_tail(path: Path, lines: int) -> int:
    """The offset of the file's last lines. Text after the last newline counts as a line."""
    with path.open("rb") as file:
        position = end = file.seek(0, os.SEEK_END)
        while position and lines:
            block, position = _block_before(file, position)
            ends = [found.start() for found in re.finditer(b"\n", block) if position + found.start() + 1 < end]
            if len(ends) >= lines:
                return position + ends[-lines] + 1
            lines -= len(ends)
    return position


def _block_before(file: BinaryIO, position: int) -> tuple[bytes, int]:
    """The bytes before the position, and the position of the first of them."""
    start = max(0, position - BLOCK_BYTES)
    file.seek(start)
    return file.read(position - start), start


def _directory(context: Context, trial_id: str, attempt: int) -> Path:
    return context.settings.logs_dir / trial_id / str(attempt)
