"""The standard output and error of a rank, followed and sent on.

Ray points both file descriptors of a worker to files. Following these files catches everything that is written (prints,
logging, native code, subprocesses) once, and leaves Ray's own logs as they are.
"""

import codecs
import contextlib
import ctypes
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.storable_values import storable_text
from trainer.worker.logs.masker import Masker

RAY_MARKERS = re.compile(r"^:(?:job_id|actor_name|task_name):.*\n?", re.MULTILINE)
"""The lines that Ray writes for its own log monitor."""

POLL_SECONDS = 0.1
CHUNK_BYTES = 200_000

CHUNKS_IN_FLIGHT = 4
"""How many chunks are sent before the first of them is accepted. What waits longer stays in the file."""

Send = Callable[[int, str, dict[str, int]], Callable[[], Any]]
"""Sends output; returns a function that waits until more may be sent."""


class OutputFile:
    """One file, read from its present end. `position` does not count what may be the beginning of a secret."""

    def __init__(self, path: str, masker: Masker) -> None:
        self.path = path
        self._masker = masker
        self._held = ""
        self._file = Path(path).open("rb")  # noqa: SIM115 - open for as long as the attempt lasts
        self.position = self._read = self._file.seek(0, os.SEEK_END)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.is_behind = False

    def read(self, *, last: bool = False) -> str:
        """What was added, masked and in whole characters; with `last`, also an incomplete one."""
        added = self._file.read(CHUNK_BYTES)
        self.is_behind = len(added) == CHUNK_BYTES
        is_end = last and not self.is_behind
        if self.is_behind:
            added = self._whole_lines(added)
        self._read += len(added)
        text = RAY_MARKERS.sub("", storable_text(self._decoder.decode(added, final=is_end)))
        if self._masker:
            text, self._held = (self._held + text, "") if is_end else self._masker.split(self._held + text)
            text = self._masker.mask(text)
        self.position = self._read - len(self._held.encode())
        return text

    def _whole_lines(self, chunk: bytes) -> bytes:
        """Leave the line at the chunk's end for the next one: what the other file has would come into its middle."""
        lines = chunk[: chunk.rfind(b"\n") + 1]
        if not lines:  # one line, longer than a chunk
            return chunk
        self._file.seek(len(lines) - len(chunk), os.SEEK_CUR)
        return lines

    def skip(self) -> None:
        """Leave out what was added."""
        self.position = self._read = self._file.seek(0, os.SEEK_END)
        self._held, self.is_behind = "", False

    def close(self) -> None:
        self._file.close()


class LogFollower(threading.Thread):
    """Follows this process's output until `finish()`. `send(offset, text, positions)` gets what was added, in order.

    `offset` counts the bytes sent before; `positions` has how far each file has been read. The receiver decides how
    fast it reads on. Secrets are masked. What follows after more than `max_bytes` is not sent: the receiver stores no
    more of a rank, and has noted it with the chunk that exceeded them.
    """

    def __init__(self, send: Send, masker: Masker, max_bytes: int | None = None) -> None:
        super().__init__(name="paceline-logs", daemon=True)
        self._send = send
        self._files = [OutputFile(path, masker) for path in output_paths()]
        self._offset = 0
        self._max_bytes = max_bytes
        self._in_flight: deque[Callable[[], Any]] = deque()
        self._finished = threading.Event()

    @property
    def positions(self) -> dict[str, int]:
        return {file.path: file.position for file in self._files}

    def run(self) -> None:
        while not self._finished.wait(0 if self._is_behind else POLL_SECONDS):
            self._send_added()

    @property
    def _is_behind(self) -> bool:
        return any(file.is_behind for file in self._files)

    def finish(self) -> None:
        """Send the rest, and wait until it is accepted. To be called from the thread that wrote last."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):  # the training function has closed it
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what native code has written through C's own streams
        self._finished.set()
        self.join()
        while self._send_added() or self._is_behind:
            pass
        self._send_added(last=True)
        self._wait_for_room(0)
        for file in self._files:
            file.close()

    def _send_added(self, *, last: bool = False) -> bool:
        if self._max_bytes is not None and self._offset > self._max_bytes:
            for file in self._files:
                file.skip()
            return False
        text = "".join(file.read(last=last) for file in self._files)
        if text:
            self._in_flight.append(self._send(self._offset, text, self.positions))
            self._offset += len(text.encode())
        self._wait_for_room(CHUNKS_IN_FLIGHT)
        return bool(text)

    def _wait_for_room(self, chunks_in_flight: int) -> None:
        while len(self._in_flight) > chunks_in_flight:
            self._in_flight.popleft()()


def output_paths() -> list[str]:
    """The files behind this process's descriptors 1 and 2, where they are files."""
    targets = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)]
    return [path for path in dict.fromkeys(targets) if Path(path).is_file()]
