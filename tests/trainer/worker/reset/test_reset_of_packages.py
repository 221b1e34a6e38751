"""What several trials of one package leave in a process: its loggers, pools, classes and hooks."""

import gc
import logging
import os
import resource
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.worker.package_trials import Trials
from trainer.worker.reset.memory import FROZEN_MODULE

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed library that gives its logger a handler when it is imported, as Lightning and Optuna do."""
    name, folder = "library_of_test", tmp_path / "installed"
    folder.mkdir()
    (folder / f"{name}.py").write_text(
        "import logging\nlogging.getLogger(__name__).addHandler(logging.StreamHandler())"
    )
    monkeypatch.syspath_prepend(folder)
    yield name
    sys.modules.pop(name, None)
    logging.Logger.manager.loggerDict.pop(name, None)


@pytest.mark.usefixtures("library")
def test_a_librarys_own_handler_stays_and_the_trials_do_not(trials: Trials) -> None:
    train = """
        import logging

        def train_fn():
            import library_of_test
            loggers = [logging.getLogger(name) for name in ("my run", "trained.part")]
            found = [len(logger.handlers) + len(logger.filters) for logger in loggers]
            for logger in loggers:
                logger.addHandler(logging.StreamHandler())
                logger.addFilter(logging.Filter())
            librarys = logging.getLogger("library_of_test")
            librarys.addHandler(logging.FileHandler("log", delay=True))
            return found, [type(handler).__name__ for handler in librarys.handlers]
        """
    trials.write(trained=train)
    expected = ([0, 0], ["StreamHandler", "FileHandler"]), None
    assert [trials.run() for _ in range(3)] == [expected] * 3


@pytest.mark.usefixtures("library")
def test_a_library_in_a_temporary_folder_is_imported_once(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a `runtime_env`: its folder is on the path before the trial."""
    monkeypatch.setattr(tempfile, "tempdir", str(trials.root.parent))
    trials.write(trained="def train_fn():\n    import library_of_test\n    return id(library_of_test)")
    assert len({trials.run() for _ in range(2)}) == 1


@pytest.mark.usefixtures("library")
def test_a_handler_that_a_trial_gives_to_the_logger_of_a_library_goes_with_it(trials: Trials) -> None:
    train = """
        import logging, logging.config

        def train_fn():
            import library_of_test
            librarys = logging.getLogger("library_of_test")
            found = len(librarys.handlers)
            librarys.addHandler(logging.StreamHandler())
            handlers = {"mine": {"class": "logging.StreamHandler"}}
            loggers = {"library_of_test.part": {"handlers": ["mine"]}}
            found_in_part = len(logging.getLogger("library_of_test.part").handlers)
            logging.config.dictConfig({"version": 1, "incremental": False, "disable_existing_loggers": False,
                                       "handlers": handlers, "loggers": loggers})
            librarys.handlers.append(logging.StreamHandler(open("log", "w")))
            librarys.handlers[-1].stream.close()
            return found, found_in_part
        """
    trials.write(trained=train)
    assert [trials.run() for _ in range(3)] == [((1, 0), None)] * 3


def test_a_logger_that_a_trial_has_silenced_logs_in_the_next_one(trials: Trials) -> None:
    train = """
        import logging

        def train_fn():
            own = logging.getLogger("an experiment")
            found = own.isEnabledFor(logging.ERROR), own.propagate
            own.setLevel(logging.CRITICAL)
            own.propagate = False
            return found
        """
    trials.write(trained=train)
    assert [trials.run() for _ in range(2)] == [((True, True), None)] * 2


def test_the_loggers_class_is_as_before_after_a_trial(trials: Trials) -> None:
    before = logging.Logger.addHandler
    trials.write(trained="def train_fn():\n    pass")
    assert trials.run() == (None, None)
    assert logging.Logger.addHandler is before


def test_a_configuration_of_logging_disables_the_same_loggers_in_every_trial(trials: Trials) -> None:
    train = """
        import logging.config

        def train_fn():
            logging.config.dictConfig({"version": 1})
            import helper_of_test
            return helper_of_test.log.disabled
        """
    trials.write(helper_of_test="import logging\nlog = logging.getLogger(__name__)", trained=train)
    assert [trials.run()[0] for _ in range(2)] == [False, False]


def test_joblibs_pool_ends_with_its_trial(trials: Trials) -> None:
    train = """
        import joblib

        CALLS = []

        def work(_):
            import trained
            trained.CALLS.append(1)
            return len(trained.CALLS)

        def train_fn():
            return joblib.Parallel(n_jobs=2)([joblib.delayed(work)(0)])
        """
    trials.write(trained=train)
    assert [trials.run() for _ in range(2)] == [([1], None)] * 2


def test_a_data_loader_in_a_reference_cycle_ends_by_itself(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch alone waits five seconds for each of its processes, and then terminates it."""
    terminated: list[BaseProcess] = []
    monkeypatch.setattr(BaseProcess, "terminate", terminated.append)
    train = """
        import torch
        from torch.utils.data import DataLoader

        class Trainer:
            def __init__(self):
                self.callbacks = [self.train]
                self.loader = DataLoader(torch.zeros(8), batch_size=2, num_workers=1, persistent_workers=True)

            def train(self):
                return len(list(self.loader))

        def train_fn():
            return Trainer().train()
        """
    trials.write(trained=train)
    assert trials.run() == (4, None)
    assert terminated == []


def test_torch_loads_the_class_of_the_present_trial(trials: Trials) -> None:
    train = """
        import torch

        class Settings:
            pass

        def train_fn():
            torch.serialization.add_safe_globals([Settings])
            torch.save(Settings(), "file.pt")
            return isinstance(torch.load("file.pt"), Settings)
        """
    trials.write(trained=train)
    assert [trials.run()[0] for _ in range(3)] == [True] * 3


def test_a_hook_for_all_modules_is_that_of_the_present_trial(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch, "calls_of_test", calls, raising=False)
    train = """
        import functools
        import torch
        from torch.nn.modules import module

        def note(what, *_):
            torch.calls_of_test.append(what)

        def note_backward(*_):
            torch.calls_of_test.append("backward")

        def train_fn():
            module.register_module_forward_hook(functools.partial(note, "forward"), always_call=True)
            module.register_module_full_backward_hook(note_backward)
            torch.nn.Linear(1, 1)(torch.zeros(1, requires_grad=True)).sum().backward()
        """
    trials.write(trained=train)
    for _ in range(3):
        assert trials.run() == (None, None)
        assert calls == ["forward", "backward"]
        calls.clear()
    torch.nn.Linear(1, 1)(torch.zeros(1))
    assert calls == []
    assert not torch.nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]


def hooks() -> list[Any]:
    of_sys = [sys.excepthook, sys.unraisablehook, sys.displayhook]
    of_logging = [logging.getLoggerClass(), logging.getLogRecordFactory()]
    return [*of_sys, *of_logging, threading.excepthook, warnings.showwarning, warnings.formatwarning, *gc.callbacks]


def test_hooks_of_the_package_are_put_back_and_those_of_a_library_stay(trials: Trials) -> None:
    train = """
        import gc, logging, sys, threading, warnings

        class OwnLogger(logging.Logger):
            pass

        def own_hook(*_):
            pass

        def train_fn():
            logging.setLoggerClass(OwnLogger)
            sys.excepthook = threading.excepthook = sys.unraisablehook = sys.displayhook = own_hook
            warnings.showwarning = warnings.formatwarning = own_hook
            logging.setLogRecordFactory(own_hook)
            gc.callbacks.append(own_hook)
        """
    trials.write(trained=train)
    before = hooks()
    assert trials.run() == (None, None)
    assert hooks() == before
    trials.write(trained="import sys\ndef train_fn():\n    sys.excepthook = print")
    assert trials.run() == (None, None)
    assert sys.excepthook is print
    sys.excepthook = before[0]


def test_warnings_that_the_package_has_logging_capture_go_to_the_streams_again(trials: Trials) -> None:
    train = """
        import logging, warnings

        def train_fn():
            before = warnings.showwarning.__module__
            logging.captureWarnings(True)
            return before
        """
    trials.write(trained=train)
    before = warnings.showwarning
    for _ in range(2):
        assert trials.run() == (before.__module__, None)
        assert warnings.showwarning is before


def test_a_process_that_has_grown_is_replaced(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.write(trained="def train_fn():\n    return 1")
    assert trials.run() == (1, None)
    monkeypatch.setitem(vars(sys.modules[FROZEN_MODULE]), "megabytes", -2000.0)
    reason = trials.run()[1]
    assert reason is not None
    assert reason.startswith("its memory has grown by ")


def test_a_process_with_a_lock_is_replaced(trials: Trials) -> None:
    train = """
        import fcntl, os

        def train_fn():
            descriptor = os.open("lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor
        """
    trials.write(trained=train)
    descriptor, reason = trials.run()
    os.close(descriptor)
    assert reason is not None
    assert reason.startswith("the training function left files locked: ")


@pytest.fixture
def room_for_files() -> Iterator[int]:
    """As many descriptors are in use as may be opened before the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len([*Path("/proc/self/fd").iterdir()])
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * used + 20, hard))
    yield used
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_is_replaced_before_files_that_trials_leave_open_add_up_to_its_limit(
    trials: Trials, room_for_files: int
) -> None:
    """A trial that has the process for itself would not reach it."""
    train = """
        import os

        def train_fn():
            return [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        """
    trials.write(trained=train)
    ends = [trials.run() for _ in range(2)]
    for descriptor in [one for opened, _ in ends for one in opened]:
        os.close(descriptor)
    assert [reason for _, reason in ends] == [
        None,
        f"the training function left 8 files open: {room_for_files + 16} of at most {2 * room_for_files + 20}",
    ]
