"""What this process logs, as the lines of a process whose log is JSON."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer.process_log.line_format import JsonLines

Line = dict[str, Any]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Line] = []
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(json.loads(self.format(record)))


@contextmanager
def logged(name: str, level: int = logging.DEBUG) -> Iterator[list[Line]]:
    """The lines of this logger and those below, as they come."""
    logger, handler = logging.getLogger(name), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
