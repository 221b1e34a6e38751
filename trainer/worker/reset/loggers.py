"""The configuration of the loggers of a process."""

import inspect
import logging
import sys
import warnings
from dataclasses import dataclass
from types import FrameType
from typing import Any

_add_handler = logging.Logger.addHandler
_capture_warnings = logging.captureWarnings

ADDED_BY = "paceline_added_by"
"""The attribute of a handler with the name of the module whose code has added it during a trial."""


@dataclass(frozen=True)
class HandlerState:
    """What a trial may change on a log handler that serves one trial after another."""

    handler: logging.Handler
    level: int
    formatter: logging.Formatter | None
    filters: tuple[Any, ...]

    @classmethod
    def of(cls, handler: logging.Handler) -> "HandlerState":
        return cls(handler, handler.level, handler.formatter, tuple(handler.filters))

    def put_back(self) -> logging.Handler:
        self.handler.setLevel(self.level)
        self.handler.setFormatter(self.formatter)
        self.handler.filters[:] = self.filters
        return self.handler


@dataclass(frozen=True)
class LoggerState:
    handlers: tuple[HandlerState, ...]
    filters: tuple[Any, ...]
    level: int
    propagate: bool
    disabled: bool

    @classmethod
    def of(cls, logger: logging.Logger) -> "LoggerState":
        handlers = tuple(map(HandlerState.of, logger.handlers))
        return cls(handlers, tuple(logger.filters), logger.level, logger.propagate, logger.disabled)

    def put_back(self, logger: logging.Logger) -> None:
        if logger.handlers or self.handlers:
            logger.handlers[:] = [one.put_back() for one in self.handlers]
        if logger.filters or self.filters:
            logger.filters[:] = self.filters
        logger.propagate, logger.disabled = self.propagate, self.disabled
        if logger.level != self.level:  # setting it empties the caches of all loggers
            logger.setLevel(self.level)


def logger_states() -> dict[str | None, LoggerState]:
    """The configuration of each logger by its name; None is the root logger."""
    return {name: LoggerState.of(logger) for name, logger in _loggers().items()}


@dataclass
class WarningCapture:
    """Whether `logging` captured warnings before the trial, and the module that has called for a change last."""

    was_on: bool = False
    changed_by: str | None = None

    def put_back(self, unloaded: set[str]) -> None:
        if self.changed_by in unloaded:
            _capture_warnings(self.was_on)
        self.changed_by = None


_warning_capture = WarningCapture()


def note_who_changes_logging() -> None:
    """Until `restore_loggers`. A handler itself does not tell whether it is its library's own or the package's."""
    _warning_capture.was_on = getattr(warnings.showwarning, "__module__", None) == logging.__name__
    logging.Logger.addHandler = _add_noted  # type: ignore[assignment, method-assign]
    logging.captureWarnings = _capture_noted


def _capture_noted(capture: bool) -> None:
    _capture_warnings(capture)
    _warning_capture.changed_by = _calling_module()


def _add_noted(logger: logging.Logger, hdlr: logging.Handler) -> None:
    _add_handler(logger, hdlr)
    if (module := _calling_module()) is not None:
        vars(hdlr)[ADDED_BY] = module


def _calling_module() -> str | None:
    """The module that has called the function of `logging` for which one here stands."""
    own = inspect.currentframe()
    frame: FrameType | None = own.f_back if own is not None else None
    while frame is not None and (_is_of_logging(frame) or _module_of(frame) == __name__):
        frame = frame.f_back
    return None if frame is None else _module_of(frame)


def _is_of_logging(frame: FrameType) -> bool:
    """Whether the frame is of `logging` or of `logging.config`."""
    return _module_of(frame).partition(".")[0] == logging.__name__


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def restore_loggers(states: dict[str | None, LoggerState], unloaded: set[str]) -> None:
    """`unloaded` are the package's modules, whose loggers are forgotten: they will be made again.

    New loggers of libraries keep what the libraries have given them when they were imported, which happens once.
    """
    if logging.Logger.addHandler is _add_noted:  # a library may have replaced it, too
        logging.Logger.addHandler = _add_handler  # type: ignore[method-assign]
    if logging.captureWarnings is _capture_noted:
        logging.captureWarnings = _capture_warnings
    _warning_capture.put_back(unloaded)
    tops = {name.partition(".")[0] for name in unloaded}
    for name, logger in _loggers().items():
        top = (name or "").partition(".")[0]
        if (state := states.get(name)) is not None:
            state.put_back(logger)
        elif name is not None and top in tops:
            logging.Logger.manager.loggerDict.pop(name, None)
        elif top in sys.modules:
            logger.disabled = False
            logger.handlers[:] = [one for one in logger.handlers if _is_of_library(one, unloaded, tops)]
        else:
            NEW_LOGGER.put_back(logger)


NEW_LOGGER = LoggerState(handlers=(), filters=(), level=logging.NOTSET, propagate=True, disabled=False)
"""The package holds it no more, but `logging` does, and gives it to the next trial that asks for the name."""


def _is_of_library(handler: logging.Handler, unloaded: set[str], tops: set[str]) -> bool:
    """A file belongs to the trial, and so does a handler of the package: by its class, or by who has added it."""
    if isinstance(handler, logging.FileHandler) or getattr(getattr(handler, "stream", None), "closed", False):
        return False
    return getattr(handler, ADDED_BY, None) not in unloaded and type(handler).__module__.partition(".")[0] not in tops


def _loggers() -> dict[str | None, logging.Logger]:
    """There are about a thousand. `logging.getLogger` takes a lock, which would cost milliseconds for all of them."""
    named = logging.Logger.manager.loggerDict.copy().items()  # other threads may import
    return {None: logging.root, **{name: found for name, found in named if isinstance(found, logging.Logger)}}
