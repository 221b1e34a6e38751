"""Settings of Python and of torch that hold for a whole process, and that a training function may change."""

import asyncio
import builtins
import contextlib
import csv
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
import tracemalloc
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

TORCH_BACKENDS = (
    "cudnn.allow_tf32",
    "cuda.matmul.allow_tf32",
    "fp32_precision",
    "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "mkldnn.enabled",
    "mkldnn.deterministic",
    "opt_einsum.enabled",
    "opt_einsum.strategy",
)
"""Attributes of `torch.backends`. Not every torch has all of them."""

STANDARD_ERROR = 2

FAULTHANDLER = "faulthandler"

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Scripts color their names. Other levels that a trial or a library has named keep their names."""


@dataclass(frozen=True)
class Setting:
    """`name` is for people. `read` gives a value that `write` takes.

    `libraries_change_it`: a library may do so when it is imported, which happens once. So it is put back only from what
    the package has set.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    libraries_change_it: bool = False


@dataclass(frozen=True)
class SavedSetting:
    setting: Setting
    value: Any

    def put_back(self, unloaded: set[str]) -> str | None:
        """Returns why the setting cannot be put back, or None."""
        present = _read(self.setting)
        is_librarys = self.setting.libraries_change_it and getattr(present, "__module__", None) not in unloaded
        if present == self.value or is_librarys:
            return None
        self.setting.write(self.value)
        if _read(self.setting) == self.value:
            return None
        return f"the training function changed {self.setting.name}, which cannot be undone"


def saved_settings() -> list[SavedSetting]:
    torch = sys.modules.get("torch")
    settings = [_faulthandler(), *_python_settings(), *(_torch_settings(torch) if torch is not None else ())]
    return [SavedSetting(setting, _read(setting)) for setting in settings]


def restore_settings(saved: list[SavedSetting], unloaded: set[str]) -> str | None:
    """Returns why one of them cannot be put back, or None. `unloaded` are the names of the package's modules."""
    faulthandler.cancel_dump_traceback_later()  # there is no way to read it
    if next(one.value for one in saved if one.setting.name == FAULTHANDLER):
        faulthandler.enable(STANDARD_ERROR, all_threads=False)  # there is no way to read the file that it writes to
    gc.garbage.clear()
    # Libraries add theirs when they are imported.
    gc.callbacks[:] = [one for one in gc.callbacks if getattr(one, "__module__", None) not in unloaded]
    return next(filter(None, [one.put_back(unloaded) for one in saved]), None)


def _read(setting: Setting) -> Any:
    """Torch refuses to read a precision that was set by its older names and by its newer ones."""
    try:
        return setting.read()
    except RuntimeError as error:
        return str(error)


def _python_settings() -> Iterator[Setting]:
    yield from _settings_of_the_interpreter()
    yield from _settings_of_logging()
    yield from _settings_of_warnings()
    yield from _settings_of_the_standard_library()
    yield from _settings_of_the_system()


def _faulthandler() -> Setting:
    """As Ray enables it, so that the stack of a crash is in the output of the process."""
    enable = partial(faulthandler.enable, STANDARD_ERROR, all_threads=False)
    return Setting(FAULTHANDLER, faulthandler.is_enabled, lambda on: enable() if on else faulthandler.disable())


def _settings_of_the_interpreter() -> Iterator[Setting]:
    yield Setting("gc.enable", gc.isenabled, lambda on: gc.enable() if on else gc.disable())
    yield Setting("gc.set_threshold", gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds))
    yield Setting("gc.set_debug", gc.get_debug, gc.set_debug)
    yield Setting("tracemalloc", tracemalloc.is_tracing, lambda on: tracemalloc.start() if on else tracemalloc.stop())
    yield Setting("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting("sys.setswitchinterval", sys.getswitchinterval, sys.setswitchinterval)
    yield Setting("sys.set_int_max_str_digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits)
    yield _attribute_of(sys, "dont_write_bytecode")
    yield Setting("sys.tracebacklimit", lambda: getattr(sys, "tracebacklimit", None), _limit_tracebacks)
    yield Setting("threading.stack_size", threading.stack_size, threading.stack_size)
    for name in ("excepthook", "unraisablehook", "displayhook", "breakpointhook"):
        yield _attribute_of(sys, name, libraries_change_it=True)
    yield _attribute_of(threading, "excepthook", libraries_change_it=True)
    yield Setting("threading.settrace", threading.gettrace, threading.settrace)
    yield Setting("threading.setprofile", threading.getprofile, threading.setprofile)
    yield Setting("sys.argv", lambda: [*sys.argv], partial(setattr, sys, "argv"))
    yield _builtins()


def _limit_tracebacks(limit: int | None) -> None:
    """Set or remove `sys.tracebacklimit`, an attribute that by default does not exist."""
    if limit is not None:
        sys.tracebacklimit = limit
    elif hasattr(sys, "tracebacklimit"):
        del sys.tracebacklimit


def _builtins() -> Setting:
    """Scripts for several processes replace `print`, so that rank 0 alone prints. What libraries add stays."""
    names = [name for name in vars(builtins) if name not in ("_", "__import__")]
    present = vars(builtins)
    return Setting("builtins", lambda: {name: present.get(name) for name in names}, present.update)


def _settings_of_logging() -> Iterator[Setting]:
    yield Setting("logging.setLoggerClass", logging.getLoggerClass, logging.setLoggerClass, libraries_change_it=True)
    get, put = logging.getLogRecordFactory, logging.setLogRecordFactory
    yield Setting("logging.setLogRecordFactory", get, put, libraries_change_it=True)
    yield _attribute_of(logging, "raiseExceptions")
    yield _attribute_of(logging, "lastResort")
    for level in LEVELS:
        name = f"logging.addLevelName({level})"
        yield Setting(name, partial(logging.getLevelName, level), partial(logging.addLevelName, level))


def _settings_of_warnings() -> Iterator[Setting]:
    for name in ("showwarning", "formatwarning"):
        yield _attribute_of(warnings, name, libraries_change_it=True)


def _settings_of_the_standard_library() -> Iterator[Setting]:
    start_method = partial(multiprocessing.get_start_method, allow_none=True)
    # A second `set_start_method` without `force` raises RuntimeError.
    yield Setting("multiprocessing's start method", start_method, partial(multiprocessing.set_start_method, force=True))
    yield Setting("socket.setdefaulttimeout", socket.getdefaulttimeout, socket.setdefaulttimeout)
    yield _attribute_of(tempfile, "tempdir")
    yield _attribute_of(ssl, "_create_default_https_context")
    yield _attribute_of(urllib.request, "_opener")
    if sys.version_info < (3, 14):  # where policies are deprecated
        policy = asyncio.get_event_loop_policy, asyncio.set_event_loop_policy
        yield Setting("asyncio.set_event_loop_policy", *policy)
    yield Setting("csv.field_size_limit", csv.field_size_limit, csv.field_size_limit)
    yield Setting("decimal.DefaultContext", _read_decimal_context, _write_decimal_context)


def _settings_of_the_system() -> Iterator[Setting]:
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        yield Setting(f"signal.setitimer({timer})", partial(_is_running, timer), partial(_cancel, timer))
    if sys.platform == "linux":
        yield Setting("os.umask", _read_umask, os.umask)
        main = os.getpid()  # of the main thread, from which later ones have it; that of the trial ends
        affinity = partial(os.sched_getaffinity, main), partial(_set_affinity, main)
        yield Setting("os.sched_setaffinity", *affinity)
        priority = partial(os.getpriority, os.PRIO_PROCESS, main), partial(_set_priority, main)
        yield Setting("os.setpriority", *priority)
    set_locale = partial(locale.setlocale, locale.LC_ALL)  # without a value, it returns the present one
    yield Setting("locale.setlocale", set_locale, set_locale)
    yield Setting("time.tzset", lambda: (time.tzname, time.timezone), lambda _zone: time.tzset())  # of the environment
    for name in [name for name in dir(resource) if name.startswith("RLIMIT_")]:
        which = getattr(resource, name)
        yield Setting(f"resource.{name}", partial(resource.getrlimit, which), partial(_set_limit, which))


def _set_affinity(main: int, cpus: set[int]) -> None:
    with contextlib.suppress(OSError):  # the CPUs may have been taken away from the process
        os.sched_setaffinity(main, cpus)


def _set_priority(main: int, priority: int) -> None:
    """Set the priority. It stays as it is without the privilege to raise one, which the caller notices."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, main, priority)


def _is_running(timer: int) -> bool:
    return signal.getitimer(timer) != (0.0, 0.0)


def _cancel(timer: int, was_running: bool) -> None:
    """Cancel a timer, such as that of `signal.alarm`, whose signal would end the process."""
    if not was_running:
        signal.setitimer(timer, 0)


def _attribute_of(module: ModuleType, name: str, *, libraries_change_it: bool = False) -> Setting:
    get, put = partial(getattr, module, name), partial(setattr, module, name)
    return Setting(f"{module.__name__}.{name}", get, put, libraries_change_it)


def _set_limit(which: int, limits: tuple[int, int]) -> None:
    """Set a limit. Only root may raise a hard one again: for others it stays, which the caller notices."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, limits)


def _read_decimal_context() -> dict[str, Any]:
    context = decimal.DefaultContext
    values = {name: getattr(context, name) for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")}
    return {**values, "traps": dict(context.traps)}


def _write_decimal_context(values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(decimal.DefaultContext, name, value)


def _read_umask() -> int:
    """`os.umask` can only be read by changing it, also for the files that another thread creates meanwhile."""
    status = Path("/proc/self/status").read_text().splitlines()  # proc_pid_status(5)
    return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))


def _torch_settings(torch: Any) -> Iterator[Setting]:
    """They are put back in this order: a precision by its older name changes the newer ones."""
    yield Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled)
    yield Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting(
        "torch.use_deterministic_algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda modes: torch.use_deterministic_algorithms(modes[0], warn_only=modes[1]),
    )
    yield Setting(
        "torch.autograd.set_detect_anomaly",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda modes: torch.autograd.set_detect_anomaly(*modes),
    )
    deterministic, future = torch.utils.deterministic, torch.__future__
    yield _attribute_of(deterministic, "fill_uninitialized_memory")
    for name in ("overwrite_module_params_on_conversion", "swap_module_params_on_conversion"):
        yield Setting(f"torch.__future__.set_{name}", getattr(future, f"get_{name}"), getattr(future, f"set_{name}"))
    shared = torch.multiprocessing
    yield Setting(
        "torch.multiprocessing.set_sharing_strategy", shared.get_sharing_strategy, shared.set_sharing_strategy
    )
    # Torch has no way back: a second call raises RuntimeError.
    yield Setting("torch.set_num_interop_threads", torch.get_num_interop_threads, lambda _count: None)
    yield Setting(
        "torch.set_float32_matmul_precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    )
    for kernel in ("flash", "mem_efficient", "math", "cudnn"):
        backend, function = torch.backends.cuda, f"enable_{kernel}_sdp"
        yield Setting(
            f"torch.backends.cuda.{function}", getattr(backend, f"{kernel}_sdp_enabled"), getattr(backend, function)
        )
    for path in TORCH_BACKENDS:
        yield from _attribute(torch.backends, path)


def _attribute(backends: Any, path: str) -> Iterator[Setting]:
    *parents, name = path.split(".")
    owner = backends
    for parent in parents:
        owner = getattr(owner, parent, None)
    try:
        getattr(owner, name)
    except AttributeError:
        return
    except RuntimeError:
        pass  # it exists, and cannot be read: see `_read`
    yield Setting(f"torch.backends.{path}", partial(getattr, owner, name), partial(setattr, owner, name))
