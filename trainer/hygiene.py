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

from trainer.package import is_inside

# Threads of widely used libraries that wait for work, hold nothing of a trial, and never end.
HARMLESS_THREADS = ("TMonitor", "tqdm_monitor", "asyncio_", "pin_memory", "InductorSubproc")

# Marks a process whose libraries are out of the collector's sight. (`gc.get_freeze_count()` walks through them all.)
FROZEN = "_paceline_frozen"

# What a fresh process of torch starts with.
TORCH_FRESH_SEED = 67280421310721


@dataclass
class Baseline:
    """What an attempt may change and the next must not see. Taken before the user's code is imported."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = field(default_factory=os.getcwd)
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    threads: frozenset[int] = field(default_factory=lambda: frozenset(t.ident or 0 for t in threading.enumerate()))
    handlers: dict[str | None, list[logging.Handler]] = field(default_factory=lambda: log_handlers())  # noqa: PLW0108
    torch: dict[str, Any] = field(default_factory=lambda: torch_settings())  # noqa: PLW0108 - defined below

    def restore(self, package: Path | None) -> str | None:
        """Put everything back. Returns why the process can't be used again, or None."""
        _restore_environment(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        sys.path[:] = self.path
        _forget_modules(set(sys.modules) - self.modules, package)
        _restore_handlers(self.handlers)
        _reseed()
        _restore_torch(self.torch)
        collect_garbage()
        _empty_cuda_cache()
        return self._leftovers()

    def _leftovers(self) -> str | None:
        running = [
            t for t in threading.enumerate() if t.ident not in self.threads and t is not threading.current_thread()
        ]
        strange = [t.name for t in running if not t.name.startswith(HARMLESS_THREADS)]
        return f"threads still run: {', '.join(strange)}" if strange else None


def collect_garbage() -> None:
    """Free the attempt's memory.

    The first time, what is left then (Ray, torch, the libraries that the user's code has loaded) is taken out of the
    collector's sight for good: looking through it again costs 0.1 to 0.2 seconds at the end of every trial.
    """
    gc.collect()
    if FROZEN not in sys.modules:
        sys.modules[FROZEN] = ModuleType(FROZEN)
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


def log_handlers() -> dict[str | None, list[logging.Handler]]:
    """The handlers of each logger by its name; None is the root."""
    return {name: list(logging.getLogger(name).handlers) for name in (None, *logging.Logger.manager.loggerDict)}


def _restore_handlers(handlers: dict[str | None, list[logging.Handler]]) -> None:
    for name in (None, *logging.Logger.manager.loggerDict):
        logging.getLogger(name).handlers[:] = handlers.get(name, [])


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
        torch.manual_seed(TORCH_FRESH_SEED)


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
