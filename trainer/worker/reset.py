"""A worker process as it was before the user's code ran in it, so that the next trial starts clean."""

import contextlib
import gc
import logging
import os
import random
import sys
import threading
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer.worker.user_code import is_inside

# Threads of widely used libraries that wait for work, hold nothing of a trial, and never end.
HARMLESS_THREADS = ("TMonitor", "tqdm_monitor", "asyncio_", "pin_memory", "InductorSubproc")

# Marks a process whose libraries are out of the collector's sight. (`gc.get_freeze_count()` walks through them all.)
FROZEN = "_paceline_frozen"

# What a fresh process of torch starts with.
TORCH_FRESH_SEED = 67280421310721


@dataclass(frozen=True)
class HandlerState:
    """A handler serves one trial after the other; what a trial hangs on it is that trial's."""

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


@dataclass
class Baseline:
    """What an attempt may change and the next must not see. Taken before the user's code is imported."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = field(default_factory=os.getcwd)
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    threads: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    disabled: int = field(default_factory=lambda: logging.root.manager.disable)
    loggers: dict[str | None, LoggerState] = field(default_factory=lambda: logger_states())  # noqa: PLW0108
    torch: dict[str, Any] = field(default_factory=lambda: torch_settings())  # noqa: PLW0108 - defined below

    def __post_init__(self) -> None:
        if FROZEN not in sys.modules:
            set_libraries_aside()

    def restore(self, package: Path | None) -> str | None:
        """Put everything back. Returns why the process can't be used again, or None."""
        _restore_environment(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        sys.path[:] = self.path
        _forget_modules(set(sys.modules) - self.modules, package)
        logging.disable(self.disabled)
        _restore_loggers(self.loggers)
        _reseed()
        _restore_torch(self.torch)
        collect_garbage()
        _empty_cuda_cache()
        return self._reset_failure()

    def _reset_failure(self) -> str | None:
        running = {*threading.enumerate()} - self.threads - {threading.current_thread()}
        strange = sorted(t.name for t in running if not t.name.startswith(HARMLESS_THREADS))
        return f"threads still run: {', '.join(strange)}" if strange else None


def set_libraries_aside() -> None:
    """Take what the process has loaded out of the collector's sight for good: it looks for 0.1 to 0.5 seconds."""
    gc.freeze()


def collect_garbage() -> None:
    """Free the attempt's memory. The first time, what the user's code has loaded is then set aside, too."""
    gc.collect()
    if FROZEN not in sys.modules:
        sys.modules[FROZEN] = ModuleType(FROZEN)
        set_libraries_aside()


def torch_settings() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
    }


def logger_states() -> dict[str | None, LoggerState]:
    """How each logger is set up, by its name; None is the root."""
    return {name: LoggerState.of(logger) for name, logger in _loggers().items()}


def _loggers() -> dict[str | None, logging.Logger]:
    """There are about a thousand: `logging.getLogger`, with its lock, would take milliseconds for them."""
    named = logging.Logger.manager.loggerDict.copy().items()  # others may be importing
    return {None: logging.root, **{name: found for name, found in named if isinstance(found, logging.Logger)}}


def _restore_loggers(states: dict[str | None, LoggerState]) -> None:
    """Those that are new keep their levels, which libraries set when they are imported, and that is once."""
    for name, logger in _loggers().items():
        if (state := states.get(name)) is not None:
            state.put_back(logger)
        else:
            logger.handlers.clear()


def _restore_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _forget_modules(names: set[str], package: Path | None) -> None:
    """Let the user's own modules be imported anew: what they keep in globals is the trial's."""
    for name in names:
        module = sys.modules[name]
        if package is not None and module is not None and is_inside(module, package):
            del sys.modules[name]


def _reseed() -> None:
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        _seed_torch(torch)


def _seed_torch(torch: Any) -> None:
    """Where there is no accelerator, the general function takes milliseconds, to seed it once there is one."""
    if torch.cuda.is_available() or torch.xpu.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(TORCH_FRESH_SEED)
    else:
        torch.default_generator.manual_seed(TORCH_FRESH_SEED)


def _restore_torch(settings: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not settings:
        return
    torch.set_default_dtype(settings["dtype"])
    torch.set_grad_enabled(settings["gradients"])
    if torch.are_deterministic_algorithms_enabled() != settings["deterministic"]:  # setting it imports the compiler
        torch.use_deterministic_algorithms(settings["deterministic"])
    if torch.get_num_threads() != settings["threads"]:
        torch.set_num_threads(settings["threads"])


def _empty_cuda_cache() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        with warnings.catch_warnings(action="ignore"):
            torch.cuda.empty_cache()
