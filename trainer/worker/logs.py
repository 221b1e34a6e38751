"""The standard output and error of a rank, followed and sent on.

Ray points both file descriptors of a worker to files. Following these files catches everything that is written (prints,
logging, native code, subprocesses) once, and leaves Ray's own logs as they are.
"""

import codecs
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.storable import storable_text

RAY_MARKERS = re.compile(r"^:(?:job_id|actor_name|task_name):.*\n?", re.MULTILINE)
"""The lines that Ray writes for its own log monitor."""

POLL_SECONDS = 0.1
CHUNK_BYTES = 200_000


class OutputFile:
    """One file, read from its present end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = Path(path).open("rb")  # noqa: SIM115 - open for as long as the attempt lasts
        self.position = self._file.seek(0, os.SEEK_END)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, *, last: bool = False) -> str:
        """What was added, in whole characters; with `last`, also an incomplete one."""
        added = self._file.read(CHUNK_BYTES)
        self.position += len(added)
        text = self._decoder.decode(added, final=last and len(added) < CHUNK_BYTES)
        return RAY_MARKERS.sub("", storable_text(text))

    def close(self) -> None:
        self._file.close()


class LogTail(threading.Thread):
    """Follows this process's output until `finish()`. `send(offset, text, positions)` gets what was added, in order.

    `offset` counts the bytes sent before; `positions` has how far each file has been read.
    """

    def __init__(self, send: Callable[[int, str, dict[str, int]], Any]) -> None:
        super().__init__(name="paceline-logs", daemon=True)
        self._send = send
        self._files = [OutputFile(path) for path in output_paths()]
        self._offset = 0
        self._finished = threading.Event()

    @property
    def positions(self) -> dict[str, int]:
        return {file.path: file.position for file in self._files}

    def run(self) -> None:
        while not self._finished.wait(POLL_SECONDS):
            self._send_added()

    def finish(self) -> None:
        """Send the rest. To be called from the thread that wrote last."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._finished.set()
        self.join()
        while self._send_added():
            pass
        self._send_added(last=True)
        for file in self._files:
            file.close()

    def _send_added(self, *, last: bool = False) -> bool:
        text = "".join(file.read(last=last) for file in self._files)
        if text:
            self._send(self._offset, text, self.positions)
            self._offset += len(text.encode())
        return bool(text)


def output_paths() -> list[str]:
    """The files behind this process's descriptors 1 and 2, where they are files."""
    targets = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)]
    return [path for path in dict.fromkeys(targets) if Path(path).is_file()]
