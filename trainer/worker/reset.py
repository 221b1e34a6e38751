"""The reset of a worker process between two trials: the second must not see what the first has changed."""

import contextlib
import gc
import logging
import os
import random
import sys
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer.worker.logs.standard_streams import StandardStreams
from trainer.worker.user_code import is_inside

HARMLESS_THREADS = ("TMonitor", "tqdm_monitor", "asyncio_", "pin_memory", "InductorSubproc")
"""Threads of widely used libraries. They wait for work, hold no data of a trial, and never end."""

ENDING_THREADS = ("iter_threaded", "map_tp_", "Prefetcher")
"""Threads of a loop over a dataset. They notice late that the loop was left, and end with the dataset server."""

THREADS_END_SECONDS = 1.0
"""How long threads that the trial has started may take to end."""

STARTING_POLL_SECONDS = 0.001

FROZEN_MODULE = "_paceline_frozen"
"""Marks a process whose libraries are frozen for the GC. (`gc.get_freeze_count()` would walk through all objects.)"""

TORCH_DEFAULT_SEED = 67280421310721
"""The seed with which torch starts in a new process."""


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


@dataclass
class Baseline:
    """The state of the process that an attempt may change. Taken before the user's code is imported."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = field(default_factory=os.getcwd)
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    threads: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    disabled: int = field(default_factory=lambda: logging.root.manager.disable)
    loggers: dict[str | None, LoggerState] = field(default_factory=lambda: logger_states())  # noqa: PLW0108
    torch: dict[str, Any] = field(default_factory=lambda: torch_settings())  # noqa: PLW0108 - defined below
    streams: StandardStreams = field(default_factory=StandardStreams)

    def __post_init__(self) -> None:
        if FROZEN_MODULE not in sys.modules:
            gc.freeze()  # the GC would look through all loaded libraries for 0.1 to 0.5 seconds

    def restore(self, package: Path | None) -> str | None:
        """Restore this state. Returns why the process cannot be used again, or None."""
        _restore_environment(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        sys.path[:] = self.path
        _unload_modules(set(sys.modules) - self.modules, package)
        logging.disable(self.disabled)
        _restore_loggers(self.loggers)
        _reseed()
        _restore_torch(self.torch)
        collect_garbage()
        _empty_cuda_cache()
        return self.streams.put_back() or _kept_by_deepspeed() or self._why_threads_are_left()

    def _why_threads_are_left(self) -> str | None:
        left = threads_left(self.threads)
        return f"the training function left threads running: {', '.join(left)}" if left else None


def _kept_by_deepspeed() -> str | None:
    """It keeps the process group in globals of many of its modules, and uses it again although it has ended."""
    has_group = getattr(sys.modules.get("deepspeed.comm.comm"), "cdb", None) is not None
    return "DeepSpeed keeps this trial's process group" if has_group else None


def threads_left(known: frozenset[threading.Thread]) -> list[str]:
    """The names of other threads that do not end within THREADS_END_SECONDS, without those that do no harm."""
    running = {*threading.enumerate()} - known - {threading.current_thread()}
    unknown = [thread for thread in running if not thread.name.startswith(HARMLESS_THREADS)]
    deadline = time.monotonic() + THREADS_END_SECONDS
    for thread in unknown:
        _join(thread, deadline)
    return sorted(t.name for t in unknown if t.is_alive() and not t.name.startswith(ENDING_THREADS))


def _join(thread: threading.Thread, deadline: float) -> None:
    """`threading.enumerate` also has a thread that another one is just starting: such a thread cannot be joined yet."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            thread.join(left)
        except RuntimeError:
            time.sleep(STARTING_POLL_SECONDS)
        else:
            return


def collect_garbage() -> None:
    """Free the attempt's memory. After the first attempt, also freeze what the user's code has loaded."""
    gc.collect()
    if FROZEN_MODULE not in sys.modules:
        sys.modules[FROZEN_MODULE] = ModuleType(FROZEN_MODULE)
        gc.freeze()


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
    """The configuration of each logger by its name; None is the root logger."""
    return {name: LoggerState.of(logger) for name, logger in _loggers().items()}


def _loggers() -> dict[str | None, logging.Logger]:
    """There are about a thousand. `logging.getLogger` takes a lock, which would cost milliseconds for all of them."""
    named = logging.Logger.manager.loggerDict.copy().items()  # other threads may import
    return {None: logging.root, **{name: found for name, found in named if isinstance(found, logging.Logger)}}


def _restore_loggers(states: dict[str | None, LoggerState]) -> None:
    """New loggers keep their levels, because libraries set them only when they are imported, which happens once."""
    for name, logger in _loggers().items():
        if (state := states.get(name)) is not None:
            state.put_back(logger)
        else:
            logger.handlers.clear()


def _restore_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _unload_modules(names: set[str], package: Path | None) -> None:
    """Have the user's own modules imported again, since their globals belong to the trial."""
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
    """Without an accelerator, `torch.manual_seed` would spend milliseconds on preparing to seed one."""
    if torch.cuda.is_available() or torch.xpu.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(TORCH_DEFAULT_SEED)
    else:
        torch.default_generator.manual_seed(TORCH_DEFAULT_SEED)


def _restore_torch(settings: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not settings:
        return
    torch.set_default_dtype(settings["dtype"])
    torch.set_grad_enabled(settings["gradients"])
    if torch.are_deterministic_algorithms_enabled() != settings["deterministic"]:  # setting it imports torch's compiler
        torch.use_deterministic_algorithms(settings["deterministic"])
    if torch.get_num_threads() != settings["threads"]:
        torch.set_num_threads(settings["threads"])


def _empty_cuda_cache() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        with warnings.catch_warnings(action="ignore"):
            torch.cuda.empty_cache()
