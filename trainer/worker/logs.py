"""What a rank writes to its standard output and error, followed and handed on.

Ray points both of a worker's file descriptors at files of its own. Following those files catches everything that ends
up in them (prints, logging, native code, subprocesses), doubles nothing and leaves Ray's own logs as they are.
"""

import codecs
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

from trainer.text import storable

# Lines that Ray writes for its own log monitor.
MARKS = re.compile(r"^:(?:job_id|actor_name|task_name):.*\n?", re.MULTILINE)

POLL_SECONDS = 0.1
CHUNK_BYTES = 200_000


class Stream:
    """One file, read from where it ends now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115, PTH123 - open for as long as the attempt lasts
        self.position = self._file.seek(0, os.SEEK_END)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, *, last: bool = False) -> str:
        """What was added, whole characters only (`last`: whatever there is)."""
        added = self._file.read(CHUNK_BYTES)
        self.position += len(added)
        return MARKS.sub("", storable(self._decoder.decode(added, final=last and len(added) < CHUNK_BYTES)))

    def close(self) -> None:
        self._file.close()


class LogTail(threading.Thread):
    """Follows this process's output until `finish()`; `ship(offset, text, positions)` gets what was added, in order.

    `offset` counts the bytes shipped before; `positions` says how far each file has been read.
    """

    def __init__(self, ship: Callable[[int, str, dict[str, int]], Any]) -> None:
        super().__init__(name="paceline-logs", daemon=True)
        self._ship = ship
        self._streams = [Stream(path) for path in output_files()]
        self._offset = 0
        self._over = threading.Event()

    @property
    def positions(self) -> dict[str, int]:
        return {stream.path: stream.position for stream in self._streams}

    def run(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            self._ship_added()

    def finish(self) -> None:
        """Ship the rest. Call from the thread that wrote last."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._over.set()
        self.join()
        while self._ship_added():
            pass
        self._ship_added(last=True)
        for stream in self._streams:
            stream.close()

    def _ship_added(self, *, last: bool = False) -> bool:
        text = "".join(stream.read(last=last) for stream in self._streams)
        if text:
            self._ship(self._offset, text, self.positions)
            self._offset += len(text.encode())
        return bool(text)


def output_files() -> list[str]:
    """The files behind this process's descriptors 1 and 2, where they are files."""
    targets = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)]
    return [path for path in dict.fromkeys(targets) if os.path.isfile(path)]  # noqa: PTH113
