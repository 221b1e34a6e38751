"""The configuration of the loggers of a process."""

import logging
import sys
from dataclasses import dataclass
from typing import Any


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


def restore_loggers(states: dict[str | None, LoggerState], unloaded: set[str]) -> None:
    """`unloaded` are the package's modules, whose loggers are forgotten: they will be made again.

    New loggers of libraries keep what the libraries have given them when they were imported, which happens once.
    """
    tops = {name.partition(".")[0] for name in unloaded}
    for name, logger in _loggers().items():
        top = (name or "").partition(".")[0]
        if (state := states.get(name)) is not None:
            state.put_back(logger)
        elif name is not None and top in tops:
            logging.Logger.manager.loggerDict.pop(name, None)
        else:
            _keep_librarys_part(logger, is_librarys=top in sys.modules, unloaded=tops)


def _keep_librarys_part(logger: logging.Logger, *, is_librarys: bool, unloaded: set[str]) -> None:
    logger.disabled = False
    logger.handlers[:] = [one for one in logger.handlers if is_librarys and _is_of_library(one, unloaded)]
    if not is_librarys:
        logger.filters.clear()


def _is_of_library(handler: logging.Handler, unloaded: set[str]) -> bool:
    """A file belongs to the trial, and so does a handler whose class is the package's."""
    is_of_package = type(handler).__module__.partition(".")[0] in unloaded
    return not isinstance(handler, logging.FileHandler) and not is_of_package


def _loggers() -> dict[str | None, logging.Logger]:
    """There are about a thousand. `logging.getLogger` takes a lock, which would cost milliseconds for all of them."""
    named = logging.Logger.manager.loggerDict.copy().items()  # other threads may import
    return {None: logging.root, **{name: found for name, found in named if isinstance(found, logging.Logger)}}
