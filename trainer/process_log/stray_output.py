"""What is written to a standard stream past `logging`: by libraries with handlers of their own, and by `print`."""

import io
import logging
import threading
from typing import TextIO

MAX_BEGUN = 300
"""In characters, which have room in a line of JSON. A progress bar may never end its line."""


class StrayOutput(io.TextIOBase):
    """Stands in for a standard stream, and logs each line that is written to it.

    A long line that is written in several pieces is logged in parts. One that is written at once is logged whole, and
    JsonLines cuts it.
    """

    def __init__(self, stream: TextIO, name: str, level: int) -> None:
        self._stream = stream
        self._logger, self._level = logging.getLogger(name), level
        self._mine = threading.local()  # lines of several threads must not mix

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._mine, "begun", "") + text).split("\n")
        if len(rest) >= MAX_BEGUN:
            lines, rest = [*lines, rest], ""
        self._mine.begun = rest
        for line in lines:
            self._log(line)
        return len(text)

    def _log(self, line: str) -> None:
        """Unless this is what `logging` says when it cannot write a line."""
        if line.strip() and not getattr(self._mine, "is_logging", False):
            self._mine.is_logging = True
            try:
                self._logger.log(self._level, "%s", line.rstrip())
            finally:
                self._mine.is_logging = False

    def flush(self) -> None:
        """A line that is not complete yet stays."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"
