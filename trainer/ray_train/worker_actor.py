"""The worker's side of a kept group: Ray's worker actor, made ready for one run after another."""

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

from trainer.worker.session import OVER

WORKER_LOGS = "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING"

RAYS_LOGGER = "ray.train"

# For the end of its thread a worker waits that is asked how it is when it is done, unless it goes on saving.
LAST_WAIT_SECONDS = 0.02


class WarmTrainWorker(RayTrainWorker):  # type: ignore[misc]
    """Ray's worker, made ready for one run after another."""

    _logs = False

    def init_train_context(self, *args: Any, **kwargs: Any) -> None:
        """To set the loggers up again takes longer than all the rest: only what they say of the run is new."""
        with environment(WORKER_LOGS, "0") if self._logs else contextlib.nullcontext():
            super().init_train_context(*args, **kwargs)
        self._logs = True
        for name in (None, RAYS_LOGGER):
            for handler in logging.getLogger(name).handlers:
                for found in handler.filters:
                    if isinstance(found, TrainContextFilter):
                        vars(found).update(vars(TrainContextFilter(get_train_context())))
        quiet()
        if env_bool(RAY_CHDIR_TO_TRIAL_DIR, True):
            WorkingDirectorySetupCallback().after_execution_group_start(_LocalExecution())

    def poll_status(self) -> Any:
        """Let a thread that is about to end do so, for otherwise this would have to be asked again."""
        context = get_train_context()
        running = context.execution_context
        if getattr(context, OVER, False) and running.result_queue.empty():
            running.training_thread_runner._thread.join(LAST_WAIT_SECONDS)  # noqa: SLF001
        return super().poll_status()


WarmTrainWorker.__name__ = RayTrainWorker.__name__  # which Ray names its processes after


class _LocalExecution:
    """What Ray would execute on all workers, executed in this one."""

    def execute(self, function: Callable[[], Any]) -> None:
        function()


def quiet() -> None:
    """Let Ray Train write down no more than what is worth a line: each costs a quarter of a millisecond."""
    logging.getLogger(RAYS_LOGGER).setLevel(logging.INFO)


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Only for as long as Ray reads it: what stays set is copied into each worker's runtime environment."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
