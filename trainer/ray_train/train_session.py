"""The worker's access to Ray Train's session: the context of a run, and `ray.train.report()`.

It runs in the worker process and travels there by value.
"""

import builtins
import errno
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray.train import Checkpoint, CheckpointUploadMode
from ray.train.v2._internal.execution import context as ray_context
from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils, set_train_fn_utils
from ray.train.v2._internal.logging import patch_print

from trainer.phase_times import CHECKPOINTING, DATA, REPORTING
from trainer.ray_train.checkpoint_files import FileSizes, file_sizes
from trainer.ray_train.resumed_checkpoint import OnReadError, ResumedCheckpoint

OnReport = Callable[[dict[str, Any], str | None, FileSizes | None], None]
"""Called with a report's metrics, the path of its checkpoint, if it has one that is saved already, and the sizes of the
files that this rank saves, None if they are not known."""

OnSaveError = Callable[[str, OSError], Exception]
"""Gets the storage folder and the error of a checkpoint that could not be saved; returns what `report()` raises."""

OnShard = Callable[[str, Any], Any]
"""Gets the name of a dataset and the answer of the shard provider, None without one; returns the iterator."""

During = Callable[[str], AbstractContextManager[None]]
"""Gets the phase of `trainer.phase_times` that the training function waits for."""

NO_STORAGE = "Unable to set up cluster storage"
"""With these words Ray refuses to save where the folder of the attempt is missing."""

TRAINING_DONE = "paceline_training_done"
"""The attribute of a train context that says that its training thread is about to end."""


def world() -> tuple[int, int]:
    """The rank of this worker, and the number of workers."""
    context = ray_context.get_train_context()
    return context.get_world_rank(), context.get_world_size()


def ranks_of_node() -> int:
    """The number of workers of this run on this node."""
    count: int = ray_context.get_train_context().get_local_world_size()
    return count


def rank_on_node() -> int:
    """The rank of this worker among those of this run on its node."""
    rank: int = ray_context.get_train_context().get_local_rank()
    return rank


def node_of_run() -> int | None:
    """The number of this node among those of the run; None if there is only one."""
    context = ray_context.get_train_context()
    number: int = context.get_node_rank()
    return number if context.get_local_world_size() < context.get_world_size() else None


def prepare_context(resume: str | None, on_read_error: OnReadError) -> None:
    """Give this run its own copy of what Ray keeps once per process, and the checkpoint to resume from.

    It also turns off Ray's line of log for each report of each rank, and its wrapper of `print`, which writes each line
    to standard output and, through logging, to standard error.
    """
    context = ray_context.get_train_context()
    context.report_order_condition = threading.Condition()
    context.checkpoint_upload_threadpool = ThreadPoolExecutor(
        max_workers=ray_context.MAX_CHECKPOINT_UPLOAD_THREADS, thread_name_prefix="asyncio_ray_upload"
    )
    if context.checkpoint is None and resume is not None:
        context.checkpoint = ResumedCheckpoint(resume, on_read_error)
    ray_context.logger.setLevel(logging.WARNING)
    builtins.print = patch_print._original_print  # noqa: SLF001 - Ray offers no switch


def working_directory() -> str | None:
    """The directory that Ray Train made for this run; None if this process works in another one."""
    directory: str = ray_context.get_train_context().get_storage().local_working_directory
    return directory if os.path.realpath(directory) == os.path.realpath(os.curdir) else None


def finish_uploads() -> None:
    """Wait for the checkpoints that are saved in the background, as Ray does after the training function."""
    ray_context.get_train_context().checkpoint_upload_threadpool.shutdown()


def set_hooks(on_report: OnReport, on_save_error: OnSaveError, on_shard: OnShard, during: During) -> None:
    """Have `ray.train.report()` call `on_report` after Ray's own report. What a hook raises leaves the user's call."""
    set_train_fn_utils(HookedTrainFnUtils(on_report, on_save_error, on_shard, during))


def mark_training_done() -> None:
    setattr(ray_context.get_train_context(), TRAINING_DONE, True)


class HookedTrainFnUtils(DistributedTrainFnUtils):  # type: ignore[misc]
    """Ray Train's functions for the training function, which call the hooks."""

    def __init__(self, on_report: OnReport, on_save_error: OnSaveError, on_shard: OnShard, during: During) -> None:
        self._on_report = on_report
        self._on_save_error = on_save_error
        self._on_shard = on_shard
        self._during = during

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        provider = ray_context.get_train_context().dataset_shard_provider
        with self._during(DATA):
            answer = provider.get_dataset_shard(dataset_info) if provider is not None else None
        return self._on_shard(dataset_info.dataset_name, answer)

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """As Ray's `report()`. Also raises what the hooks raise and return."""
        # Before Ray's report, which may delete the files. What the user's own upload function saves is not known.
        files = None if kwargs.get("checkpoint_upload_fn") else file_sizes(checkpoint)
        try:
            with self._during(REPORTING if checkpoint is None else CHECKPOINTING):
                super().report(metrics, checkpoint, checkpoint_dir_name, checkpoint_upload_mode, *args, **kwargs)
        except (OSError, RuntimeError) as error:
            refused = storage_error(error, None if kwargs.get("checkpoint_upload_fn") else checkpoint)
            if refused is None:
                raise
            folder = ray_context.get_train_context().storage_context.experiment_fs_path
            raise self._on_save_error(folder, refused) from error
        is_saved = checkpoint is not None and checkpoint_upload_mode != CheckpointUploadMode.ASYNC
        with self._during(REPORTING):
            self._on_report(metrics, ray_context.get_train_context().checkpoint.path if is_saved else None, files)


def storage_error(error: OSError | RuntimeError, checkpoint: Checkpoint | None) -> OSError | None:
    """The storage's error behind what Ray's `report()` raised; None if the user's code is the cause.

    `checkpoint` is None for one that the user's own function uploads.
    """
    if isinstance(error, FileNotFoundError):
        return None if checkpoint is None or _is_missing(checkpoint) else error
    if isinstance(error, OSError):
        return error
    return FileNotFoundError(errno.ENOENT, "the attempt's folder is not there") if NO_STORAGE in str(error) else None


def _is_missing(checkpoint: Checkpoint) -> bool:
    """Whether the directory that the user's code has written is not there."""
    return isinstance(checkpoint.filesystem, LocalFileSystem) and not os.path.isdir(checkpoint.path)  # noqa: PTH112
