"""The output of each rank, as files: `logs/<trial>/<attempt>/rank-<rank>.log`."""

import codecs
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from search.mistakes import Mistake
from search.numbers_in_messages import counted
from service.errors import Invalid, not_written
from service.operations.attempts.leases import check_lease
from service.operations.attempts.log_file import append
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.tables import AttemptRow, ExperimentRow
from trainer.wire import DatasetFunction, LogChunk, Trainer

BLOCK_BYTES = 256_000
LONGEST_CHARACTER = 4
"""In bytes of UTF-8."""

NO_STARTS: Mapping[int, int] = {}

MAX_TAIL_LINE_BYTES = 100_000
"""A tail shows no more than this of each line, on average: output without line ends is one line."""


def store_log(context: Context, trial_id: str, token: str | None, chunk: LogChunk) -> None:
    """Append a chunk to its rank's log; a repeat is harmless, and what is beyond the trial's quota is not stored.

    The caller is answered as if it were stored, so that it does not send it again. Raises Unauthorized, NotFound,
    LeaseLost, Invalid, InsufficientStorage.
    """
    with context.database.read() as session:
        attempt = check_lease(session, trial_id, token)
        _check_rank(session, attempt, chunk.rank)
        directory = _directory(context, trial_id, attempt.number)
    limit = context.settings.max_log_bytes
    try:
        directory.mkdir(parents=True, exist_ok=True)
        append(
            directory / f"rank-{chunk.rank}.log",
            chunk.offset,
            chunk.text.encode(),
            lambda: limit - _size_of_logs(directory.parent),
            f"{limit / 1e6:g} MB",
        )
    except OSError as error:
        raise not_written("the log", error) from error


def missing_end(attempt: AttemptRow) -> str:
    """A note for the end of the log, if the attempt was ended without its holder; empty for any other attempt.

    What the holder had not sent by then is refused.
    """
    if attempt.ended_at is None or attempt.lease_expires_at is not None:
        return ""
    return f"[paceline: {(attempt.failure or {}).get('message')}; output that had not arrived by then is missing]\n"


def _check_rank(session: Session, attempt: AttemptRow, rank: int) -> None:
    """Raises Invalid for a rank that the trial does not have. Those after the workers' are of `_beside_workers`."""
    if rank == 0:
        return  # each group has it, and most groups have no other
    trainer = spec_of(session.get_one(ExperimentRow, attempt.experiment_id)).trainer
    workers, others = trainer.scaling.most_workers, _beside_workers(trainer)
    if rank >= workers + len(others):
        has = f"the trial has up to {counted(workers, 'worker')}"
        ranks = "".join(f", and rank {workers + index} is the {other}'s" for index, other in enumerate(others))
        raise Invalid([Mistake(("rank",), f"must be at most {workers + len(others) - 1}; {has}{ranks}")])


def _beside_workers(trainer: Trainer) -> list[str]:
    """What else of the trial runs the user's code and has a log: each has the rank after the one before."""
    validation = ["validation"] if trainer.validation is not None else []
    return [*validation, *(["dataset function"] if isinstance(trainer.datasets, DatasetFunction) else [])]


def _size_of_logs(trial: Path) -> int:
    """The bytes of all logs of all attempts."""
    return sum(path.stat().st_size for path in trial.glob("*/rank-*.log"))


class Log:
    """Reads the log files of an attempt, of one rank or of all; each read continues where the last one ended.

    With `tail`, reading starts at the last lines of each existing file, which are found from its end; with `starts`,
    at these offsets of the ranks, or at the end of a file that is shorter. Without `rank`, each line names its rank.
    """

    def __init__(
        self,
        context: Context,
        trial_id: str,
        attempt: int,
        *,
        rank: int | None = None,
        tail: int | None = None,
        starts: Mapping[int, int] = NO_STARTS,
    ) -> None:
        self._directory = _directory(context, trial_id, attempt)
        self._rank = rank
        self.starts: Mapping[int, int] = {one: _start_in(path, starts.get(one, 0), tail) for one, path in self._files()}
        self._offsets = {self._directory / f"rank-{one}.log": offset for one, offset in self.starts.items()}
        self._after_return: set[Path] = set()

    def read(self, *, whole_lines: bool) -> str:
        """Return the next part, empty if there is none. `whole_lines`: leave out a last line that may still grow."""
        for rank, path in self._files():
            if part := self._read(path, whole_lines=whole_lines):
                text = part.decode(errors="replace")
                return text if self._rank is not None else _with_rank(rank, text)
        return ""

    def _read(self, path: Path, *, whole_lines: bool) -> bytes:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                part = file.read(BLOCK_BYTES)
        except FileNotFoundError:  # deleted meanwhile
            return b""
        if whole_lines or len(part) == BLOCK_BYTES:
            end = max(part.rfind(b"\n"), part.rfind(b"\r")) + 1  # progress bars end their lines with \r
            part = part[:end] if end or len(part) < BLOCK_BYTES else _whole_characters(part)
        self._offsets[path] = offset + len(part)
        shown = part if self._rank is not None else self._without_second_end(path, part)
        return shown if shown or not part else self._read(path, whole_lines=whole_lines)

    def _without_second_end(self, path: Path, part: bytes) -> bytes:
        r"""The two characters of one \r\n may come in two reads, and end one line as if they came in one."""
        if not part:
            return part
        is_second = path in self._after_return and part.startswith(b"\n")
        (self._after_return.add if part.endswith(b"\r") else self._after_return.discard)(path)
        return part[1:] if is_second else part

    def _files(self) -> list[tuple[int, Path]]:
        """(rank, file), by rank."""
        found = [(int(path.stem.removeprefix("rank-")), path) for path in self._directory.glob("rank-*.log")]
        return sorted(entry for entry in found if self._rank is None or entry[0] == self._rank)


def _whole_characters(part: bytes) -> bytes:
    """Leave out a last character of UTF-8 whose end is not in the part."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(part[-LONGEST_CHARACTER:])
    begun, _ = decoder.getstate()
    return part.removesuffix(begun)


def _with_rank(rank: int, text: str) -> str:
    return "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())


def _start_in(path: Path, start: int, tail: int | None) -> int:
    try:
        return min(start, path.stat().st_size) if tail is None else _start_of_tail(path, tail)
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _start_of_tail(path: Path, lines: int) -> int:
    """The offset of the file's last lines. Text after the last newline counts as a line."""
    with path.open("rb") as file:
        position = end = file.seek(0, os.SEEK_END)
        first = max(0, end - lines * MAX_TAIL_LINE_BYTES)
        while position > first and lines:
            block, position = _block_before(file, position, first)
            ends = [found.start() for found in re.finditer(b"\n", block) if position + found.start() + 1 < end]
            if len(ends) >= lines:
                return position + ends[-lines] + 1
            lines -= len(ends)
    return position


def _block_before(file: BinaryIO, position: int, first: int) -> tuple[bytes, int]:
    """The bytes before the position, from `first` on, and the position of the first of them."""
    start = max(first, position - BLOCK_BYTES)
    file.seek(start)
    return file.read(position - start), start


def _directory(context: Context, trial_id: str, attempt: int) -> Path:
    return context.settings.logs_dir / trial_id / str(attempt)
