"""Processes that libraries of the trial keep for their next use, with the trial's own modules and data in them."""

import contextlib
import gc
import os
import signal
import sys
from typing import Any


def end_pools() -> None:
    """End joblib's pool. Without it the next call of joblib starts a new one."""
    executor = getattr(sys.modules.get("joblib.externals.loky.reusable_executor"), "_executor", None)
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def end_data_loaders() -> None:
    """End the processes of torch's DataLoaders that are still referenced.

    The garbage collector may close their connections first. Torch then waits for each process for five seconds.
    """
    iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_MultiProcessingDataLoaderIter", None)
    if iterator is None:
        return
    for found in [each for each in gc.get_objects() if type(each) is iterator]:
        found.__del__()


def end_forkserver(known: frozenset[int]) -> None:
    """End multiprocessing's fork server, unless it is one of the known processes. The next use starts a new one.

    It has the environment of the trial, and hands it on to all that it forks. It is killed first: it would wait for
    each process that has been forked from this one, and its own processes, which run on, are named as left.
    """
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    process, stop = getattr(server, "_forkserver_pid", None), getattr(server, "_stop", None)  # a test has these names
    if process is not None and stop is not None and process not in known:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        stop()
