"""A rank's output on disk: `rank-N.log`, and in `rank-N.state` how much of the rank's output it covers.

The sender counts offsets in all of its output. The file has only what arrived, with notes where something is missing,
so its size does not depend on the offsets.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from search.mistakes import Mistake
from service.errors import Invalid

STATE_SUFFIX = ".state"

MAX_GAP_BYTES = 10_000_000_000
"""A sender drops output while the service is away for long. A larger gap is a mistake of the caller."""

GAP_NOTE = "[paceline: {:,} bytes of output did not arrive and are missing here]\n"
CUT_NOTE = "[paceline: the log ends here, because the trial's logs have reached {} (PACELINE_MAX_LOG_MB)]\n"


@dataclass(frozen=True)
class _State:
    """`covered` bytes of the rank's output were taken or are missing; they are `size` bytes of the file."""

    covered: int
    size: int
    is_cut: bool = False

    @classmethod
    def read(cls, file: BinaryIO, log: Path) -> "_State":
        """The file is empty at first, and may have anything in it after a power failure. The log itself counts then."""
        try:
            covered, size, is_cut = map(int, file.read().split())
        except ValueError:
            covered, size, is_cut = log.stat().st_size, log.stat().st_size, False
        return cls(covered, size, bool(is_cut))

    def write(self, file: BinaryIO) -> None:
        file.seek(0)
        file.write(f"{self.covered:020} {self.size:020} {self.is_cut:d}\n".encode())
        file.truncate()  # after a power failure the file may be longer


def append(log: Path, offset: int, data: bytes, room: Callable[[], int], limit: str) -> None:
    """Append what of `data`, the rank's output from `offset` on, the log does not cover yet.

    `room` says how many bytes more may be written. The log is cut there, with a note that names the `limit`. After that
    nothing is stored. Raises OSError, and Invalid for an offset far beyond what came before it.
    """
    log.touch()
    with _locked(log.with_suffix(STATE_SUFFIX)) as state_file:
        state = _State.read(state_file, log)
        if state.is_cut or offset + len(data) <= state.covered:
            return
        if offset > state.covered + MAX_GAP_BYTES:
            raise Invalid([Mistake(("offset",), f"is far beyond the {state.covered} bytes that came before it")])
        added = _gap_note(state, offset) + data[max(0, state.covered - offset) :]
        left = room()
        is_cut = len(added) > left
        if is_cut:
            added = added[: max(0, left)] + b"\n" + CUT_NOTE.format(limit).encode()
        with log.open("r+b") as file:
            file.truncate(state.size)  # a process may have died between writing the log and its state
            file.seek(state.size)
            file.write(added)
        _State(offset + len(data), state.size + len(added), is_cut).write(state_file)


def _gap_note(state: _State, offset: int) -> bytes:
    missing = offset - state.covered
    return (b"\n" if state.size else b"") + GAP_NOTE.format(missing).encode() if missing > 0 else b""


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Open the file for one writer at a time, as far as the file system has locks."""
    path.touch()
    with path.open("r+b") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
