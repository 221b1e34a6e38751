"""Ray Train's worker actor, prepared to serve one run after another."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from ray._private.ray_constants import env_bool
from ray.train.constants import RAY_CHDIR_TO_TRIAL_DIR
from ray.train.v2._internal.callbacks import WorkingDirectorySetupCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.logging.logging import TrainContextFilter

from trainer.ray_train.train_session import TRAINING_DONE

WORKER_LOGS = "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING"

RAY_TRAIN_LOGGER = "ray.train"

THREAD_END_SECONDS = 0.02
"""How long a poll waits for the thread of a finished training function. A thread that saves may take longer."""


class WarmTrainWorker(RayTrainWorker):  # type: ignore[misc]
    """Ray's worker, prepared to serve one run after another."""

    _has_loggers = False

    def init_train_context(self, *args: Any, **kwargs: Any) -> None:
        """As Ray's, but it configures the loggers once only: that takes longer than everything else it does."""
        with environment(WORKER_LOGS, "0") if self._has_loggers else contextlib.nullcontext():
            super().init_train_context(*args, **kwargs)
        self._has_loggers = True
        _update_log_context()
        lower_log_volume()
        if env_bool(RAY_CHDIR_TO_TRIAL_DIR, True):
            WorkingDirectorySetupCallback().after_execution_group_start(_ThisWorkerOnly())

    def poll_status(self) -> Any:
        """Wait a moment for a thread that is about to end, because the controller would have to poll again."""
        context = get_train_context()
        execution = context.execution_context
        if getattr(context, TRAINING_DONE, False) and execution.result_queue.empty():
            execution.training_thread_runner._thread.join(THREAD_END_SECONDS)  # noqa: SLF001
        return super().poll_status()


WarmTrainWorker.__name__ = RayTrainWorker.__name__  # Ray names the worker processes after it


class _ThisWorkerOnly:
    """Stands in for a worker group: a function for all workers runs in this one."""

    def execute(self, function: Callable[[], Any]) -> None:
        function()


def _update_log_context() -> None:
    """Have the existing log handlers name the present run."""
    for name in (None, RAY_TRAIN_LOGGER):
        for handler in logging.getLogger(name).handlers:
            for found in handler.filters:
                if isinstance(found, TrainContextFilter):
                    vars(found).update(vars(TrainContextFilter(get_train_context())))


def lower_log_volume() -> None:
    """Drop Ray Train's debug lines: each costs a quarter of a millisecond."""
    logging.getLogger(RAY_TRAIN_LOGGER).setLevel(logging.INFO)


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable only while Ray reads it: Ray copies what stays set into each worker's runtime environment."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
