"""Sets up the log of a process: its format and level, and the fields that are the same on all of its lines."""

import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainer.process_log.context import LOGGER, log_context
from trainer.process_log.line_format import JsonLines, TextLines
from trainer.process_log.stray_output import StrayOutput

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

OWN_LOGGERS = (LOGGER, "service", "search", "trainer")
"""Only these log below INFO: libraries then log whole HTTP headers."""


CHATTY_LOGGERS = ("httpx",)
"""A line for each call, also for each health check."""


class BadLogSettings(ValueError):
    """The message names the variable and says what would be right."""


@dataclass(frozen=True)
class LogSettings:
    format: str = "text"
    level: str = "info"

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """From PACELINE_LOG_FORMAT and PACELINE_LOG_LEVEL. Raises BadLogSettings."""
        return cls(
            _one_of(FORMATS, "PACELINE_LOG_FORMAT", env, cls.format),
            _one_of(LEVELS, "PACELINE_LOG_LEVEL", env, cls.level),
        )

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    @property
    def number(self) -> int:
        """The level, as `logging` counts."""
        return logging.getLevelNamesMapping()[self.level.upper()]

    def handler(self) -> logging.Handler:
        handler = logging.StreamHandler()  # sys.stderr
        handler.setFormatter(JsonLines() if self.is_json else TextLines())
        return handler


def set_up_process(settings: LogSettings, role: str, **fields: Any) -> None:
    """For a process that is all Paceline's. As JSON, its warnings, exceptions and prints become lines, too."""
    log_context.process.update(process=role, **fields)
    logging.basicConfig(level=max(settings.number, logging.INFO), handlers=[settings.handler()])
    for name in CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(settings.number)
    if settings.is_json:
        logging.captureWarnings(capture=True)
        sys.excepthook = lambda *error: logging.getLogger(LOGGER).critical("uncaught exception", exc_info=error)
        threading.excepthook = _log_end_of_thread
        _take_over_libraries()
        sys.stdout = StrayOutput(sys.stdout, "stdout", logging.INFO)
        sys.stderr = StrayOutput(sys.stderr, "stderr", logging.WARNING)


def set_up_logger(settings: LogSettings, role: str, **fields: Any) -> None:
    """For a process of Ray, whose other loggers belong to Ray and to the user's code."""
    log_context.process = {"process": role, **fields}
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [settings.handler()]
    logger.setLevel(settings.number)
    logger.propagate = False


def writes_json() -> bool:
    """Whether this process's log is JSON: then nothing else should be written beside it."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _take_over_libraries() -> None:
    """Some have handlers of their own for standard error. Of those that come later, `StrayOutput` gets the lines."""
    for logger in logging.Logger.manager.loggerDict.copy().values():
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers.clear()
            logger.propagate = True


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit or ended.exc_value is None:
        return
    name = ended.thread.name if ended.thread else "unknown"
    error = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    logging.getLogger(LOGGER).critical("uncaught exception in the thread %s", name, exc_info=error)


def _one_of(allowed: tuple[str, ...], name: str, env: Mapping[str, str], default: str) -> str:
    value = (env.get(name) or default).strip().lower()
    if value not in allowed:
        raise BadLogSettings(f"{name} must be one of {', '.join(allowed)}, not {env[name]!r}")
    return value
