"""A process is put back into the state that it had before a trial, or is not used again."""

import asyncio
import builtins
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
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from trainer.worker.reset.baseline import Baseline
from trainer.worker.reset.process_settings import Setting, saved_settings
from trainer.worker.reset.torch_state import free_gpu_memory

pytestmark = pytest.mark.slow

get_start_method = partial(multiprocessing.get_start_method, allow_none=True)


def read_umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


def set_time_zone() -> None:
    os.environ["TZ"] = "Asia/Kolkata"
    time.tzset()


def ignore(*_: Any) -> None:
    pass


def decimal_traps() -> dict[Any, bool]:
    return dict(decimal.DefaultContext.traps)


def limit_files(megabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes * 10**6, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


CPUS = os.sched_getaffinity(0)


def bit_generator() -> type[Any]:
    return type(np.random.get_bit_generator())  # type: ignore[attr-defined]


def fills_memory() -> Any:
    deterministic: Any = torch.utils.deterministic
    return deterministic.fill_uninitialized_memory


CHANGES: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: multiprocessing.set_start_method("spawn"), get_start_method),
    (lambda: torch.multiprocessing.set_start_method("spawn"), get_start_method),
    (gc.disable, gc.isenabled),
    (lambda: gc.set_threshold(9), gc.get_threshold),
    (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    (lambda: socket.setdefaulttimeout(3), socket.getdefaulttimeout),
    (lambda: sys.setswitchinterval(0.1), sys.getswitchinterval),
    (tracemalloc.start, tracemalloc.is_tracing),
    (lambda: os.umask(0o007), read_umask),
    (lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"), lambda: locale.setlocale(locale.LC_NUMERIC)),
    (set_time_zone, lambda: time.localtime(0).tm_hour),
    (lambda: sys.argv.append("--lr"), lambda: [*sys.argv]),
    (lambda: setattr(tempfile, "tempdir", "/nowhere"), lambda: tempfile.tempdir),
    (lambda: setattr(builtins, "print", str), lambda: builtins.print),
    (lambda: setattr(builtins, "open", str), lambda: builtins.open),
    (lambda: delattr(builtins, "exit"), lambda: getattr(builtins, "exit", None)),
    (lambda: sys.set_int_max_str_digits(0), sys.get_int_max_str_digits),
    (lambda: setattr(sys, "dont_write_bytecode", not sys.dont_write_bytecode), lambda: sys.dont_write_bytecode),
    (lambda: threading.setprofile(ignore), threading.getprofile),
    (lambda: threading.settrace(ignore), threading.gettrace),
    (lambda: setattr(logging, "raiseExceptions", False), lambda: logging.raiseExceptions),
    (lambda: logging.addLevelName(logging.INFO, "notice"), lambda: logging.getLevelName(logging.INFO)),
    (lambda: csv.field_size_limit(9), csv.field_size_limit),
    (lambda: setattr(decimal.DefaultContext, "prec", 3), lambda: decimal.DefaultContext.prec),
    (lambda: decimal.DefaultContext.traps.update({decimal.Inexact: True}), decimal_traps),
    (lambda: limit_files(1000), lambda: resource.getrlimit(resource.RLIMIT_FSIZE)),
    (lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000), lambda: signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0),
    (lambda: signal.setitimer(signal.ITIMER_PROF, 1000), lambda: signal.getitimer(signal.ITIMER_PROF)[0] > 0),
    (lambda: setattr(sys, "tracebacklimit", 0), lambda: getattr(sys, "tracebacklimit", None)),
    (lambda: gc.set_debug(gc.DEBUG_UNCOLLECTABLE), gc.get_debug),
    (lambda: threading.stack_size(2**23), threading.stack_size),
    (lambda: setattr(logging, "lastResort", None), lambda: logging.lastResort),
    (
        lambda: setattr(ssl, "_create_default_https_context", ssl._create_unverified_context),
        lambda: ssl._create_default_https_context,
    ),
    (
        lambda: urllib.request.install_opener(urllib.request.build_opener()),
        lambda: urllib.request._opener,  # type: ignore[attr-defined]
    ),
    (
        lambda: asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()),
        lambda: id(asyncio.get_event_loop_policy()),
    ),
    (lambda: os.sched_setaffinity(os.getpid(), [min(CPUS)]), lambda: os.sched_getaffinity(os.getpid())),
    (lambda: setattr(os, "environ", {"X": "1"}), lambda: type(os.environ)),
    (lambda: np.random.set_bit_generator(np.random.PCG64()), bit_generator),  # type: ignore[attr-defined]
    (lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False), fills_memory),
    (
        lambda: torch.__future__.set_swap_module_params_on_conversion(True),
        torch.__future__.get_swap_module_params_on_conversion,
    ),
    (lambda: setattr(torch.backends.mkldnn, "enabled", False), lambda: torch.backends.mkldnn.enabled),
    (lambda: setattr(torch.backends.opt_einsum, "enabled", False), lambda: torch.backends.opt_einsum.enabled),
    (faulthandler.disable, faulthandler.is_enabled),
    (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    (lambda: torch.set_num_threads(7), torch.get_num_threads),
    (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
    ),
    (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False), torch.is_anomaly_enabled),
    (lambda: torch.set_float32_matmul_precision("high"), torch.get_float32_matmul_precision),
    (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.backends.cuda.matmul.allow_tf32),
    (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True), torch.get_float32_matmul_precision),
    (lambda: setattr(torch.backends.cudnn, "allow_tf32", False), lambda: torch.backends.cudnn.allow_tf32),
    (lambda: setattr(torch.backends.cudnn, "benchmark", True), lambda: torch.backends.cudnn.benchmark),
    (lambda: setattr(torch.backends.cudnn, "deterministic", True), lambda: torch.backends.cudnn.deterministic),
    (partial(torch.multiprocessing.set_sharing_strategy, "file_system"), torch.multiprocessing.get_sharing_strategy),
    (lambda: torch.backends.cuda.enable_flash_sdp(False), torch.backends.cuda.flash_sdp_enabled),
    (lambda: torch.manual_seed(5), lambda: torch.initial_seed() == 5),
    (plt.figure, lambda: len(plt.get_fignums())),
]


@pytest.mark.parametrize(("change", "read"), CHANGES)
def test_what_a_trial_changes_is_put_back(change: Callable[[], Any], read: Callable[[], Any]) -> None:
    multiprocessing.set_start_method(None, force=True)  # another test may have used it
    before, baseline = read(), Baseline()
    change()
    assert read() != before
    assert baseline.restore() is None
    assert read() == before


def test_the_stack_of_a_crash_is_in_the_output_again_after_a_trial_that_sent_it_elsewhere(tmp_path: Path) -> None:
    code = """
        import ctypes, faulthandler, sys
        from trainer.worker.reset.baseline import Baseline
        faulthandler.enable(2, all_threads=False)
        baseline = Baseline()
        faulthandler.enable(open(sys.argv[1], "w"))
        assert baseline.restore() is None
        ctypes.string_at(0)
        """
    file = tmp_path / "elsewhere"
    ended = subprocess.run([sys.executable, "-c", dedent(code), str(file)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    assert "in string_at" in ended.stderr
    assert file.read_text() == ""


def test_trials_of_one_process_draw_different_numbers_as_new_processes_do() -> None:
    drawn = set()
    for _ in range(3):
        assert Baseline().restore() is None
        drawn.add(torch.rand(1).item())
    assert len(drawn) == 3


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has only the older names")
@pytest.mark.parametrize("path", ["cuda.matmul", "cudnn", "cudnn.conv", "mkldnn.matmul", ""])
def test_a_precision_by_its_newer_name_is_put_back(path: str) -> None:
    owner: Any = torch.backends
    for name in filter(None, path.split(".")):
        owner = getattr(owner, name)
    before, baseline = owner.fp32_precision, Baseline()
    owner.fp32_precision = "ieee" if before == "tf32" else "tf32"
    assert baseline.restore() is None
    assert owner.fp32_precision == before
    assert torch.get_float32_matmul_precision() == "highest"  # torch can read it again


def test_a_library_is_compiled_for_each_trial() -> None:
    """Torch compiles a function eight times, and then runs it as it is, with a warning at most."""
    compiled = 0

    def compile_graph(graph: Any, _examples: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    for width in range(1, 13):
        baseline = Baseline()
        torch.compile(torch.nn.MultiheadAttention(width, 1), backend=compile_graph)(*[torch.zeros(1, 1, width)] * 3)
        assert baseline.restore() is None
        assert compiled == width


def test_the_reset_imports_nothing_of_torchs_compiler_where_no_trial_has_used_it() -> None:
    program = """
import sys
import torch._dynamo
from trainer.worker.reset.baseline import Baseline
torch.cuda.is_available = lambda: True
torch.cuda.seed_all = lambda: None
before = set(sys.modules)
Baseline().restore()
print(sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_a_later_trial_imports_is_not_searched_for_garbage_again() -> None:
    program = """
import gc
from trainer.worker.reset.baseline import Baseline
def tracked(change):
    baseline = Baseline()
    change()
    baseline.restore()
    return len(gc.get_objects())
first = tracked(lambda: None)
import_much = lambda: __import__("scipy.stats")
print(tracked(import_much) - first < 1000, tracked(lambda: None) - first < 1000, gc.get_freeze_count() > 10_000)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True True\n"


def test_a_setting_that_torch_cannot_put_back_ends_the_process() -> None:
    """A second call raises RuntimeError, so that the next trial with this line would fail."""
    program = """
import torch
from trainer.worker.reset.baseline import Baseline
baseline = Baseline()
torch.set_num_interop_threads(torch.get_num_interop_threads() + 1)
print(baseline.restore())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "the training function changed torch.set_num_interop_threads, which cannot be undone\n"


def test_a_hard_limit_that_cannot_be_raised_again_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for all users but root."""

    def refuse(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    baseline, before = Baseline(), resource.getrlimit(resource.RLIMIT_FSIZE)
    limit_files(1000)
    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert baseline.restore() == "the training function changed resource.RLIMIT_FSIZE, which cannot be undone"
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_alarm_of_a_trial_is_cancelled() -> None:
    """In another process: the tests may have a timer."""
    program = """
import signal
from trainer.worker.reset.baseline import Baseline
baseline = Baseline()
signal.alarm(1000)
print(baseline.restore(), signal.alarm(0))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None 0\n"


def test_a_watchdog_of_a_trial_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[bool] = []
    baseline = Baseline()
    monkeypatch.setattr("faulthandler.cancel_dump_traceback_later", lambda: cancelled.append(True))
    assert baseline.restore() is None
    assert cancelled == [True]


def test_a_warning_of_a_library_is_shown_in_every_trial() -> None:
    program = """
import warnings
from trainer.worker.reset.baseline import Baseline
library = {"__name__": "library_of_test"}
for trial in range(3):
    baseline = Baseline()
    exec("import warnings; warnings.warn('deprecated')", library)
    exec("import warnings; warnings.warn('deprecated')", library)
    baseline.restore()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("UserWarning: deprecated") == 3


def test_every_setting_can_be_read_and_written() -> None:
    saved = saved_settings()
    assert all(isinstance(one.setting, Setting) for one in saved)
    names = [one.setting.name for one in saved]
    assert len(names) == len(set(names))
    for one in saved:
        one.setting.write(one.value)
        assert one.put_back(set()) is None


class FakeCuda:
    """A GPU as `torch.cuda` shows it, after a trial that left `allocated` bytes, or an error."""

    def __init__(self, allocated: int = 0, error: str | None = None) -> None:
        self.allocated, self.error = allocated, error
        self.peak, self.fraction = 8_000_000_000, 0.5

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def memory_reserved(self, device: int) -> int:
        return 1 if device == 1 else 0

    def synchronize(self, device: int) -> None:
        assert device == 1
        if self.error is not None:
            raise RuntimeError(self.error)

    def empty_cache(self) -> None:
        pass

    def reset_peak_memory_stats(self, _device: int) -> None:
        self.peak = 0

    def reset_accumulated_memory_stats(self, _device: int) -> None:
        pass

    def get_per_process_memory_fraction(self, _device: int) -> float:
        return self.fraction

    def set_per_process_memory_fraction(self, fraction: float, _device: int) -> None:
        self.fraction = fraction

    def memory_allocated(self, _device: int) -> int:
        return self.allocated


@pytest.mark.parametrize(
    ("cuda", "reason"),
    [
        (FakeCuda(allocated=30_000_000), None),
        (FakeCuda(allocated=3_000_000_000), "the training function left 3000 MB of GPU memory allocated"),
        (
            FakeCuda(error="CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA"),
            "the training function left its GPU with an error: CUDA error: device-side assert triggered",
        ),
    ],
)
def test_a_process_whose_gpu_is_not_free_is_not_used_again(
    cuda: FakeCuda, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "cuda", cuda)
    assert free_gpu_memory() == reason
    if reason is None:
        assert (cuda.peak, cuda.fraction) == (0, 1.0)
