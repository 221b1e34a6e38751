"""The worker's access to Ray Train's session: the context of a run, and `ray.train.report()`.

It runs in the worker process and travels there by value.
"""

import builtins
import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from pyarrow import ArrowException
from pyarrow.fs import FileInfo, FileType, LocalFileSystem
from ray.train import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ValidationTaskConfig,
)
from ray.train.v2._internal.execution import context as ray_context
from ray.train.v2._internal.execution import storage as ray_storage
from ray.train.v2._internal.execution.train_fn_utils import (
    DistributedTrainFnUtils,
    get_train_fn_utils,
    set_train_fn_utils,
)
from ray.train.v2._internal.logging import patch_print

from trainer.phase_times import CHECKPOINTING, DATA, REPORTING
from trainer.ray_train.checkpoints.checkpoint_file_sizes import FileSizes, checked_file_sizes, file_sizes
from trainer.ray_train.checkpoints.file_copy import save_files
from trainer.ray_train.checkpoints.resumed_checkpoint import OnReadError, ResumedCheckpoint
from trainer.storable_values import metrics_for_ray
from trainer.unused_folders import ScratchFolder

UnusedName = Callable[[str], str]
"""Gets the name that the training function has chosen for a checkpoint; returns the one under which it is saved."""

OnReport = Callable[[dict[str, Any], str | None, FileSizes | None, dict[str, Any] | None], None]
"""Called with a report's metrics, the path of its checkpoint, if it has one that is saved already, the sizes of the
files that this rank saves, None if they are not known, and the fields of the `ValidationTaskConfig` of its checkpoint:
none of them for `validation=True`, and None without a validation."""

Validated = dict[str, tuple[str, dict[str, Any]]]
"""Status and metrics of checkpoints that are validated, by their paths."""

OnValidated = Callable[[bool, float | None], Validated]
"""Gets whether to wait until no validation is pending, and for how many seconds at most."""

OnSaveError = Callable[[str, OSError, FileSizes | None], Exception]
"""Gets the storage folder, the error of a checkpoint that could not be saved, and the sizes of its files, None if they
are not known; returns what `report()` raises."""

OnLateReport = Callable[[BaseException], NoReturn]
"""Gets the error of an earlier report of this rank; raises what the later one raises."""

OnBackgroundError = Callable[[BaseException], Exception]
"""Gets why a checkpoint could not be saved in the background; returns the exception that Ray gets in its place."""

OnShard = Callable[[str, Any], Any]
"""Gets the name of a dataset and the answer of the shard provider, None without one; returns the iterator."""

During = Callable[[str], AbstractContextManager[None]]
"""Gets the phase of `trainer.phase_times` that the training function waits for."""

NO_STORAGE = "Unable to set up cluster storage"
"""With these words Ray refuses to save where the folder of the attempt is missing."""

NO_VALIDATION = (
    "this report asks for a validation, and the specification names no function for it: "
    "add trainer.validation: {entrypoint: module:function}"
)

TRAINING_DONE = "paceline_training_done"
"""The attribute of a train context that says that its training thread is about to end."""

WAITING_REPORT = "paceline_waiting_report"
"""The attribute of a train context with the number, from 0, of the report in which this rank waits for the others."""


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


def prepare_context(resume: str | None, on_read_error: OnReadError, scratch: ScratchFolder) -> None:
    """Give this run its own copy of what Ray keeps once per process, and the checkpoint to resume from.

    From now on a file of a checkpoint that does not reach the storage is an error: with Ray's copying it is not always.
    Ray's line of log for each report of each rank is turned off, and so is its wrapper of `print`, which writes each
    line to standard output and, through logging, to standard error.
    """
    context = ray_context.get_train_context()
    context.report_order_condition = threading.Condition()
    context.checkpoint_upload_threadpool = ThreadPoolExecutor(
        max_workers=ray_context.MAX_CHECKPOINT_UPLOAD_THREADS, thread_name_prefix="asyncio_ray_upload"
    )
    if context.checkpoint is None and resume is not None:
        context.checkpoint = ResumedCheckpoint(resume, on_read_error, scratch)
    ray_storage._pyarrow_fs_copy_files = save_files  # noqa: SLF001 - Ray offers no other way
    ray_context.logger.setLevel(logging.WARNING)
    builtins.print = patch_print._original_print  # noqa: SLF001 - Ray offers no switch


def working_directory() -> str | None:
    """The directory that Ray Train made for this run; None if this process works in another one."""
    directory: str = ray_context.get_train_context().get_storage().local_working_directory
    return directory if os.path.realpath(directory) == os.path.realpath(os.curdir) else None


def is_gone(checkpoint: str) -> bool:
    """Whether the storage of the attempt is there, and has no checkpoint at this URI.

    It is there if it has the file that Ray leaves at the start of an attempt. A share that is not mounted on this node
    has not, nor has what answers in the place of a bucket. The slot has written that file: where its own node has not
    mounted the share, it lies in the empty mount point. So a file system must also have the folder of the earlier
    attempt that saved the checkpoint. The checkpoint is looked for last: the storage may have come back since the
    checkpoint could not be read.
    """
    try:
        known = Checkpoint(checkpoint)
        ray_context.get_train_context().get_storage()._check_validation_file()  # noqa: SLF001 - as Ray before it saves
        is_local = isinstance(known.filesystem, LocalFileSystem)
        if is_local and not os.path.isdir(os.path.dirname(known.path.rstrip("/"))):  # noqa: PTH112, PTH120
            return False
        found: FileInfo = known.filesystem.get_file_info(known.path)
    except (OSError, RuntimeError, ArrowException):
        return False
    return found.type is FileType.NotFound


def finish_uploads() -> None:
    """Wait for the checkpoints that are saved in the background, as Ray does after the training function."""
    ray_context.get_train_context().checkpoint_upload_threadpool.shutdown()


@dataclass(frozen=True)
class Hooks:
    """What Ray Train's functions for the training function call beside what they do. What a hook raises leaves them.

    `on_validated` is None for a trial whose checkpoints are not validated.
    """

    unused_name: UnusedName
    on_report: OnReport
    on_save_error: OnSaveError
    on_late_report: OnLateReport
    on_background_error: OnBackgroundError
    on_shard: OnShard
    on_validated: OnValidated | None
    during: During


def set_hooks(hooks: Hooks) -> None:
    """Have `ray.train.report()` call `on_report` after Ray's own report, and so on."""
    set_train_fn_utils(HookedTrainFnUtils(hooks))
    runner = ray_context.get_train_context().execution_context.training_thread_runner
    errors = BackgroundErrors(runner.get_exception_queue(), hooks)
    runner.get_exception_queue = lambda: errors


def forget_report_error() -> None:
    """Its traceback keeps the frames of the training function, which has caught it, and so the model."""
    functions = get_train_fn_utils()
    if isinstance(functions, HookedTrainFnUtils):
        functions.error = None


def waiting_report() -> int | None:
    """The number, from 0, of the report in which this rank waits for the others; None while it is in none."""
    number: int | None = getattr(ray_context.get_train_context(), WAITING_REPORT, None)
    return number


def training_thread() -> int | None:
    """The identity of the thread that runs the training function; None before it has started, and after its end."""
    thread = ray_context.get_train_context().execution_context.training_thread_runner._thread  # noqa: SLF001
    return thread.ident if thread is not None and thread.is_alive() else None


def mark_training_done() -> None:
    setattr(ray_context.get_train_context(), TRAINING_DONE, True)


class HookedTrainFnUtils(DistributedTrainFnUtils):  # type: ignore[misc]
    """Ray Train's functions for the training function, which call the hooks."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._report_count = 0
        self.error: BaseException | None = None

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        provider = ray_context.get_train_context().dataset_shard_provider
        with self._hooks.during(DATA):
            answer = provider.get_dataset_shard(dataset_info) if provider is not None else None
        return self._hooks.on_shard(dataset_info.dataset_name, answer)

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        *args: Any,
        validation: bool | ValidationTaskConfig = False,
        **kwargs: Any,
    ) -> None:
        """As Ray's `report()`. Also raises what the hooks raise and return.

        Ray does not learn of the validation: the slot runs it, on warm and on new workers.
        """
        if self.error is not None:
            self._hooks.on_late_report(self.error)
        if validation and self._hooks.on_validated is None:
            raise ValueError(NO_VALIDATION)
        saved_by_ray = None if kwargs.get("checkpoint_upload_fn") else checkpoint
        files = self._files_of(checkpoint, saved_by_ray, checkpoint_upload_mode)
        if checkpoint_dir_name:  # of all ranks rank 0's name counts, which may have no part of the checkpoint
            with self._hooks.during(CHECKPOINTING):
                checkpoint_dir_name = self._hooks.unused_name(checkpoint_dir_name)
        recorded = metrics_for_ray(metrics)  # for a tensor on a GPU, this waits for the training's own work
        phase = REPORTING if checkpoint is None else CHECKPOINTING
        with self._keeping_error(), self._save_errors(saved_by_ray, files), self._hooks.during(phase), self._waiting():
            super().report(recorded, checkpoint, checkpoint_dir_name, checkpoint_upload_mode, *args, **kwargs)
        is_saved = checkpoint is not None and checkpoint_upload_mode != CheckpointUploadMode.ASYNC
        path = ray_context.get_train_context().checkpoint.path if is_saved else None
        asked = fields_of(validation) if validation and checkpoint is not None else None
        self._report_count += 1
        with self._hooks.during(REPORTING):
            self._hooks.on_report(metrics, path, files, asked)

    def _files_of(
        self, checkpoint: Checkpoint | None, saved_by_ray: Checkpoint | None, mode: CheckpointUploadMode
    ) -> FileSizes | None:
        """Before Ray's report, which may delete them. What the user's own upload function saves is not known."""
        if saved_by_ray is None:
            return {} if checkpoint is None else None
        sizes = file_sizes if mode == CheckpointUploadMode.NO_UPLOAD else checked_file_sizes
        with self._hooks.during(CHECKPOINTING):
            return sizes(saved_by_ray)

    @contextmanager
    def _keeping_error(self) -> Iterator[None]:
        """For later reports, in which Ray would wait without end for this one: it counts also reports that fail."""
        context = ray_context.get_train_context()
        count = context.report_call_index
        try:
            yield
        except BaseException as error:
            if context.report_call_index > count:
                self.error = error
            raise

    @contextmanager
    def _save_errors(self, checkpoint: Checkpoint | None, files: FileSizes | None) -> Iterator[None]:
        """Raise the storage's errors as the hook says. `checkpoint`: None for one that the user's function uploads."""
        try:
            yield
        except (OSError, RuntimeError, ArrowException) as error:
            refused = storage_error(error, checkpoint)
            if refused is None:
                raise
            folder = ray_context.get_train_context().storage_context.experiment_fs_path
            raise self._hooks.on_save_error(folder, refused, files or None) from error

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        context = ray_context.get_train_context()
        setattr(context, WAITING_REPORT, self._report_count)
        try:
            yield
        finally:
            setattr(context, WAITING_REPORT, None)

    def get_all_reported_checkpoints(
        self,
        consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
        timeout_s: float | None = None,
    ) -> list[ReportedCheckpoint]:
        """As Ray's, with what validations have found."""
        reported: list[ReportedCheckpoint] = super().get_all_reported_checkpoints(consistency_mode, timeout_s)
        if self._hooks.on_validated is None:
            return reported
        found = self._hooks.on_validated(consistency_mode is CheckpointConsistencyMode.VALIDATED, timeout_s)
        return [with_validation(one, found) for one in reported]


class BackgroundErrors:
    """What Ray's uploads in the background get for the queue `errors`, which ends the run at the first error."""

    def __init__(self, errors: Any, hooks: Hooks) -> None:
        self._errors, self._hooks = errors, hooks

    def put(self, wrapped: Any) -> None:
        """Gets the error as Ray wraps it, `UserExceptionWithTraceback`."""
        error = wrapped._base_exc  # noqa: SLF001 - Ray offers no other way
        # Ray does not say whose upload function it was.
        refused = storage_error(error, None) if isinstance(error, OSError | RuntimeError) else None
        if refused is not None:
            folder = ray_context.get_train_context().storage_context.experiment_fs_path
            error = self._hooks.on_save_error(folder, refused, None).with_traceback(error.__traceback__)
        self._errors.put(type(wrapped)(self._hooks.on_background_error(error), str(wrapped)))


def fields_of(validation: bool | ValidationTaskConfig) -> dict[str, Any]:
    """Its fields, of which Ray says that they are JSON; none for True."""
    if not isinstance(validation, ValidationTaskConfig):
        return {}
    fields: dict[str, Any] = json.loads(json.dumps(vars(validation)))
    return fields


def with_validation(reported: ReportedCheckpoint, found: Validated) -> ReportedCheckpoint:
    if reported.checkpoint.path not in found:
        return reported
    status, metrics = found[reported.checkpoint.path]
    return ReportedCheckpoint(reported.checkpoint, {**reported.metrics, **metrics}, ReportedCheckpointStatus[status])


def storage_error(error: OSError | RuntimeError | ArrowException, checkpoint: Checkpoint | None) -> OSError | None:
    """The storage's error behind what Ray's `report()` raised; None if the user's code is the cause.

    `checkpoint` is None for one that the user's own function uploads.
    """
    if isinstance(error, ArrowException) and not isinstance(error, OSError):  # such as of a page in a bucket's place
        return None if checkpoint is None else OSError(str(error))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return None if checkpoint is None or _is_missing(checkpoint) or _is_in(checkpoint, error) else error
    if isinstance(error, OSError):
        return None if error.errno == errno.ENAMETOOLONG else error
    return FileNotFoundError(errno.ENOENT, "the attempt's folder is not there") if NO_STORAGE in str(error) else None


def _is_in(checkpoint: Checkpoint, error: OSError) -> bool:
    """Whether the error is about a file of the directory, such as one that the user's code has removed meanwhile.

    pyarrow's errors name their file in the text only.
    """
    folder = f"{checkpoint.path.rstrip('/')}/"
    named = str(error.filename) if error.filename is not None else str(error).partition("'")[2]
    return isinstance(checkpoint.filesystem, LocalFileSystem) and named.startswith(folder)


def _is_missing(checkpoint: Checkpoint) -> bool:
    """Whether the directory that the user's code has written is not there."""
    return isinstance(checkpoint.filesystem, LocalFileSystem) and not os.path.isdir(checkpoint.path)  # noqa: PTH112
