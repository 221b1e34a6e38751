"""The layout of a tar archive (POSIX.1-2001, pax), known before any file is read.

The same entries always give the same bytes, so that a client can go on where its download was cut off.
"""

import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

_END = tarfile.NUL * 2 * tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Entry:
    """A file, a directory or a symbolic link of a folder.

    `name` is its path in the folder, with `/`. `modified_at` is in seconds since 1970; `size` in bytes. `target` is
    what a link points to; None for all else.
    """

    name: str
    size: int = 0
    modified_at: float = 0.0
    is_directory: bool = False
    target: str | None = None


@dataclass(frozen=True)
class FilePart:
    """`length` bytes of an entry's file, from `offset` on."""

    entry: Entry
    offset: int
    length: int


class TarLayout:
    """`size` is that of the archive in bytes. `digest` differs when a name, a size or a time differs."""

    def __init__(self, top: str, entries: Sequence[Entry]) -> None:
        """`top` is the directory that the archive has everything in."""
        files = [(_header(f"{top}/{one.name}", one), one) for one in entries]
        self.has_entries = bool(files)
        self._pieces: list[bytes | Entry] = [_header(top, Entry(top, is_directory=True))]
        for header, entry in files:
            self._pieces += [header, entry, _padding(entry.size)]
        self._pieces.append(_END)
        self._starts = [0, *accumulate(_length(piece) for piece in self._pieces)]
        self.size = self._starts[-1]
        times = "".join(f"{one.modified_at!r} " for one in entries)
        headers = b"".join(header for header, _ in files)
        self.digest = hashlib.sha256(top.encode() + headers + times.encode()).hexdigest()

    def parts(self, start: int, stop: int) -> Iterator[bytes | FilePart]:
        """What the archive has from byte `start` up to byte `stop`."""
        for piece, (begin, end) in zip(self._pieces, pairwise(self._starts), strict=True):
            first, last = max(start, begin) - begin, min(stop, end) - begin
            if first >= last:
                continue
            yield piece[first:last] if isinstance(piece, bytes) else FilePart(piece, first, last - first)


def _header(name: str, entry: Entry) -> bytes:
    info = tarfile.TarInfo(name)
    info.mtime = int(entry.modified_at)
    if entry.is_directory:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif entry.target is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
    else:
        info.size = entry.size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return tarfile.NUL * (-size % tarfile.BLOCKSIZE)


def _length(piece: bytes | Entry) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size
