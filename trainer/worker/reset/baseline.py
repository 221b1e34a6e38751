"""The state of a worker process before a trial, which is restored after it."""

import contextlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from trainer.worker.reset.loggers import LoggerState, logger_states, note_who_changes_logging, restore_loggers
from trainer.worker.reset.memory import collect_garbage, freeze_libraries, why_too_large
from trainer.worker.reset.modules import unload_modules
from trainer.worker.reset.open_files import (
    OpenFile,
    count_descriptors,
    open_files,
    why_files_are_locked,
    why_too_many_are_open,
)
from trainer.worker.reset.pools import end_data_loaders, end_forkserver, end_pools
from trainer.worker.reset.process_settings import SavedSetting, restore_settings, saved_settings
from trainer.worker.reset.processes import started_processes, why_processes_are_left
from trainer.worker.reset.standard_streams import StandardStreams
from trainer.worker.reset.threads import KnownThreads, why_threads_are_left
from trainer.worker.reset.torch_state import free_gpu_memory, reset_torch


@dataclass
class Baseline:
    """The state of the process that an attempt may change. Taken before the user's code is imported."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    environ: "os._Environ[str]" = field(default_factory=lambda: os.environ)
    folder: str = field(default_factory=os.getcwd)
    modules: dict[str, ModuleType] = field(default_factory=lambda: dict(sys.modules))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    threads: KnownThreads = field(default_factory=KnownThreads)
    processes: frozenset[int] = field(default_factory=started_processes)
    files: frozenset[OpenFile] = field(default_factory=open_files)
    descriptors: int = field(default_factory=count_descriptors)
    disabled: int = field(default_factory=lambda: logging.root.manager.disable)
    loggers: dict[str | None, LoggerState] = field(default_factory=logger_states)
    settings: list[SavedSetting] = field(default_factory=saved_settings)
    streams: StandardStreams = field(default_factory=StandardStreams)

    def __post_init__(self) -> None:
        freeze_libraries()
        note_who_changes_logging()

    def restore(self, folders: Collection[Path] = ()) -> str | None:
        """Restore this state. Returns why the process cannot be used again, or None.

        `folders` have the user's own modules: the package's, and the working directory with its copy.
        """
        if started_processes() - self.processes:
            end_data_loaders()  # first of all: the garbage collector may run at any time
        end_pools()
        end_forkserver(self.processes)
        streams = self.streams.put_back()
        os.environ = self.environ  # noqa: B003 - the object that sets C's variables, too
        _restore_environment(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        sys.path[:] = self.path
        unloaded, modules = unload_modules(self.modules, folders, self.path)
        logging.disable(self.disabled)
        restore_loggers(self.loggers, unloaded)
        _reseed()
        reset_torch(unloaded)
        settings = restore_settings(self.settings, unloaded)
        _forget_shown_warnings()
        _close_figures()
        collect_garbage()
        left = why_threads_are_left(self.threads) or why_processes_are_left(self.processes)
        left = left or why_files_are_locked(self.files) or why_too_many_are_open(self.descriptors)
        left = left or why_too_large()
        return streams or settings or modules or free_gpu_memory() or _kept_by_deepspeed() or left


def _kept_by_deepspeed() -> str | None:
    """DeepSpeed keeps the process group in globals of many of its modules, and uses it again although it has ended."""
    has_group = getattr(sys.modules.get("deepspeed.comm.comm"), "cdb", None) is not None
    return "DeepSpeed keeps this trial's process group" if has_group else None


def _forget_shown_warnings() -> None:
    """A module shows each of its warnings once, until the filters change, as they do at the end of this context."""
    with warnings.catch_warnings():
        pass


def _close_figures() -> None:
    """Matplotlib keeps the figures of `pyplot` until they are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _restore_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _reseed() -> None:
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    if not isinstance(numpy.random.get_bit_generator(), numpy.random.MT19937):
        numpy.random.set_bit_generator(numpy.random.MT19937())
    numpy.random.seed()
