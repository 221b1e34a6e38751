"""Why an attempt failed: what a rank says about the exception of the user's code."""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeGuard
from urllib.parse import unquote, urlsplit

from trainer.open_file_limit import has_node_too_many, has_process_too_many, open_file_advice
from trainer.ray_train.ray_errors import CONNECTION_FAILURES
from trainer.storable_values import storable_text
from trainer.worker.node_disk import OBJECT_STORE_ERRORS, OBJECT_STORE_FULL, NodeDiskFailed, ObjectStoreFailed
from trainer.worker.user_code.user_code import BadEntrypoint
from trainer.worker.user_code.user_frames import is_raised_in, plain_traceback, user_location, user_traceback

# The kinds of `trainer.wire.FailureKind`, spelled out: pydantic may not be installed where this code runs.
LOST, PREEMPTED, OUT_OF_MEMORY = "lost", "preempted", "out_of_memory"
USER_ERROR, CANNOT_START = "user_error", "cannot_start"

MODULE_ADVICE = "name its distribution in trainer.runtime_env, install it on the nodes, or put it into the package"
TASK_ADVICE = (
    "Ray's other processes do not have the modules of the package: before the first task, call "
    "ray.cloudpickle.register_pickle_by_value(module) for each of them"
)
STORAGE_ADVICE = "the experiment's storage must have room, and every node must be able to write to it"

MEMORY_MONITOR_WORDS = ("running low on memory", "due to memory pressure (OOM)", "OutOfMemoryError")
"""How Ray reports a worker that its memory monitor killed. It does not know of a kill by the kernel."""

DATASET_PROCESS = re.compile(r"^\s*class_name: (DatasetServer|SplitCoordinator)$", re.MULTILINE)
"""With this line Ray reports the death of an actor that hands out a trial's datasets: Paceline's, or Ray Data's."""

DATA_TASK_FAILED = re.compile(
    r"\n\nThe above exception was the direct cause of the following exception:\n\n.*\n(?: .*\n)*"
    r"ray\.(data\.)?exceptions\.\w*UserCodeException: "
)
"""What follows, in Ray's text, the error of a function that Ray Data has called in a task, such as in `map_batches`."""

TASK_FRAME = re.compile(r'^  File "(.*)", line (\d+), in .*\n(?:    .*\n)*(\S.*)?', re.MULTILINE)
"""A frame in Ray's text; after the last one, the error."""

NO_FILE = "FileNotFoundError: "

MISSING_MODULE = re.compile(r"No module named '(\w+)")

KILLED_DATA_LOADER = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal: Killed|exited unexpectedly)")
"""How torch reports that a process of a DataLoader has got SIGKILL."""

WRONG_CLUSTER = "WrongClusterID"
"""With this word Ray's head refuses a process that has joined the cluster of an earlier head."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt or one of its ranks failed, as `trainer.wire.Failure`.

    `message` is one line for people. `traceback` is that of the rank that failed first; `rank_tracebacks` has those of
    all failed ranks. `bytes_without_room`: the size of a rank's checkpoint for which the storage had no room.
    `is_of_package`: the user's package has raised the exception itself, in no call of a library. `is_refusal`: the
    service has refused a report. `is_checkpoint_missing`: the storage has not the checkpoint to resume from.
    `is_of_node_disk`: the disk of the rank's node is full, or fails, also once the trial's files are removed;
    `is_of_object_store`: where Ray's object store needs it.
    `is_at_start`: the rank's function had not begun.
    """

    kind: str
    message: str
    traceback: str | None = None
    rank_tracebacks: Mapping[int, str] = field(default_factory=dict)
    bytes_without_room: int | None = None
    is_of_package: bool = False
    is_refusal: bool = False
    is_checkpoint_missing: bool = False
    is_of_node_disk: bool = False
    is_of_object_store: bool = False
    is_at_start: bool = False


class NotSaved(OSError):
    """A checkpoint could not be written to the experiment's storage. `ray.train.report()` raises it."""

    bytes_without_room: int | None = None
    """its size, if it is known, where the storage has no room"""


class NotRead(OSError):
    """The checkpoint to resume from could not be read. Its methods, of `ray.train.get_checkpoint()`, raise it."""


class NotThere(NotRead, FileNotFoundError):
    """The storage says that it has no such checkpoint. Something else may answer in its place."""


class CommandFailed(RuntimeError):
    """The command of a trial has ended with an exit code other than 0, or by a signal."""

    output: str = ""
    """the end of what it has written, with secrets"""


class BadCommandFile(RuntimeError):
    """A file or folder of a command's own making cannot be read or saved."""


OWN_ERRORS = (BadCommandFile, CommandFailed, NodeDiskFailed)
"""Paceline raises them itself, at no line of the user's Python."""


class DatasetNotMade(Exception):
    """`ray.train.get_dataset_shard()` has no dataset to return; `failure` says why, and what to change."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def not_saved(folder: str, error: OSError, sizes: Mapping[str, int] | None = None) -> NotSaved:
    failure = NotSaved(_with_advice(f"the checkpoint could not be saved in {folder}: {error}", STORAGE_ADVICE))
    failure.errno = error.errno
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and sizes is not None:
        failure.bytes_without_room = sum(sizes.values())
    return failure


def not_read(path: str, error: OSError) -> NotRead:
    advice = "every node must be able to read the experiment's storage"
    if isinstance(error, FileNotFoundError):
        failure: NotRead = NotThere(_with_advice(f"the checkpoint {path} is not on the storage: {error}", advice))
    else:
        failure = NotRead(_with_advice(f"the checkpoint {path} could not be read: {error}", advice))
    failure.errno = error.errno
    return failure


def _with_advice(message: str, advice: str) -> str:
    """The message with the advice on the storage, unless that of `open_file_advice` follows."""
    return message if open_file_advice(message, is_own=True) is not None else f"{message}; {advice}"


def describe(
    error: BaseException,
    *,
    rank: int,
    world_size: int,
    is_importing: bool,
    folder: str | None,
    resume: str | None = None,
    has_oom_kill: bool = False,
    is_command: bool = False,
) -> Failure:
    """One rank's failure, whatever the exception of the user's class does when it is looked at.

    `is_importing`: the training function was not found yet; `folder` has the user's code; `resume` is the URI of the
    checkpoint that it resumes from. `has_oom_kill`: whether the kernel has killed for memory where the rank runs.
    `is_command`: the rank runs a command.
    """
    try:
        return _described(error, rank, world_size, is_importing, folder, resume, has_oom_kill, is_command)
    except Exception as problem:  # noqa: BLE001 - user's code
        why = f"it cannot be described, because that raised {type(problem).__name__}"
        message = f"{type(error).__name__} (rank {rank} of {world_size}); {why}"
        return Failure(CANNOT_START if is_importing else USER_ERROR, message, plain_traceback(error))


def _described(
    error: BaseException,
    rank: int,
    world_size: int,
    is_importing: bool,
    folder: str | None,
    resume: str | None,
    has_oom_kill: bool,
    is_command: bool,
) -> Failure:
    error = loss_of_datasets(error) or not_read_if_missing(error, resume)
    location = None if isinstance(error, OWN_ERRORS) else user_location(error, folder)
    message = f"{headline(error)} (rank {rank} of {world_size}{', ' + location if location else ''})"
    if (advice := _advice_on_missing_module(error, folder) or _advice_on_open_files(error)) is not None:
        message = f"{message}; {advice}"
    if isinstance(error, DatasetNotMade):
        return Failure(error.failure.kind, message, error.failure.traceback or user_traceback(error))
    kind = kind_of(error, is_importing=is_importing, is_command=is_command)
    if has_oom_kill and any(KILLED_DATA_LOADER.search(_text_of(link)) for link in chain(error)):
        kind, message = OUT_OF_MEMORY, f"{message}: the kernel killed for lack of memory"
    without_room = error.bytes_without_room if isinstance(error, NotSaved) else None
    is_of_package = folder is not None and all(is_raised_in(folder, link) for link in _handled(error))
    return Failure(
        kind,
        message,
        user_traceback(error),
        bytes_without_room=without_room,
        is_of_package=is_of_package,
        is_checkpoint_missing=resume is not None and isinstance(error, NotThere),
        is_of_node_disk=isinstance(error, NodeDiskFailed) and open_file_advice(str(error), is_own=True) is None,
        is_of_object_store=isinstance(error, ObjectStoreFailed),
        is_at_start=is_importing,
    )


def _advice_on_missing_module(error: BaseException, folder: str | None) -> str | None:
    """What to change if a module is missing: one of the package in another process of Ray's, or an installed one."""
    of_ray = [_text_of(link) for link in chain(error) if type(link).__module__.startswith("ray.")]
    missing = {name for text in of_ray for name in MISSING_MODULE.findall(text)}
    if folder is not None and any(Path(folder, file).exists() for name in missing for file in (name, f"{name}.py")):
        return TASK_ADVICE
    return MODULE_ADVICE if isinstance(error, ModuleNotFoundError) else None


def _advice_on_open_files(error: BaseException) -> str | None:
    """What to change if a process can open no more files. An error of Ray's tells of another process."""
    return open_file_advice(_text_of(error), is_own=not type(error).__module__.startswith("ray."))


def kind_of(error: BaseException, *, is_importing: bool, is_command: bool = False) -> str:
    """What an exception of a function of the user's means. `is_importing`: the function was not found yet.

    `is_command`: it is Paceline's own, which runs a command.
    """
    is_away = is_from_restarted_head(error) or has_lost_connection(error)
    if is_away or _is_of_storage_or_node(error, is_command=is_command):
        return LOST
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return CANNOT_START if is_importing or isinstance(error, BadEntrypoint) else USER_ERROR


def _is_of_storage_or_node(error: BaseException, *, is_command: bool) -> bool:
    """One that is away for a while is not the user's error, nor are the open files of a worker that runs a command.

    A function of the user's shares them with the worker.
    """
    text = _text_of(error)
    if has_process_too_many(text) and not isinstance(error, NodeDiskFailed):
        return is_command
    return has_node_too_many(text) or isinstance(error, NodeDiskFailed | NotRead | NotSaved)


def headline(error: BaseException) -> str:
    """The exception in one line."""
    if isinstance(error, (BadEntrypoint, DatasetNotMade, *OWN_ERRORS)):
        return str(error)
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called; return, or raise an exception, instead"
    if (of_task := _headline_of_data_task(error)) is not None:
        return of_task
    while isinstance(cause := vars(error).get("cause"), BaseException):
        error = cause  # Ray wraps what a worker raised
    if isinstance(error, OBJECT_STORE_ERRORS):  # of an object that cannot be read, Ray says only its number
        return f"{type(error).__name__}: {OBJECT_STORE_FULL}"
    first_line = next(iter(_text_of(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}".rstrip(": ")


def _headline_of_data_task(error: BaseException) -> str | None:
    """The headline of the error in a task of Ray Data, and where it was raised."""
    frames = _frames_of_data_task(error)
    if not frames or not (raised := frames[-1][2]):
        return None
    file, line, _ = next((one for one in reversed(frames) if "/site-packages/" not in one[0]), frames[-1])
    return f"{raised} (a task of Ray Data, {PurePath(file).name}:{line})"


def _frames_of_data_task(error: BaseException) -> list[tuple[str, str, str]]:
    """As TASK_FRAME: Ray tells them in its text only. Empty for any other error."""
    text = _text_of(error) if type(error).__module__.startswith("ray.") else ""
    failed = DATA_TASK_FAILED.search(text)
    return TASK_FRAME.findall(text[: failed.start()]) if failed is not None else []


def _text_of(error: BaseException) -> str:
    """Its text, whatever its own `__str__` does."""
    try:
        return storable_text(str(error))
    except Exception as problem:  # noqa: BLE001 - user's code
        return f"its text is not available: __str__ raised {type(problem).__name__}"


def is_of_missing_checkpoint(error: BaseException, resume: str | None) -> TypeGuard[OSError]:
    """Whether the user's code could not open a file of the checkpoint because its storage is away.

    On a file system Ray hands out the checkpoint's own directory, and the user's code reads it by itself. Of what is in
    a bucket, only the checkpoint's methods can tell that it is away.
    """
    if resume is None or not isinstance(error, OSError):
        return False
    path = _local_path(resume)
    if "://" in path:
        return False
    if isinstance(error.filename, str):
        is_named = PurePath(error.filename).is_relative_to(path)
    else:  # such as pyarrow's, which have it in the text only
        is_named = isinstance(error, FileNotFoundError) and _names(_text_of(error), path)
    return is_named and not os.path.isdir(path)  # noqa: PTH112


def _names(text: str, path: str) -> bool:
    """Whether the text has this path, or one in it."""
    return re.search(rf"(?<![^\s'\"]){re.escape(path)}(?![^\s'\"/])", text) is not None


def _local_path(uri: str) -> str:
    """The path of a `file:` URI; any other URI is returned as it is."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def not_read_if_missing(error: BaseException, checkpoint: str | None) -> BaseException:
    """The error, or NotRead in its place if `is_of_missing_checkpoint`, also in a task of Ray Data."""
    raised = _missing_file_of_data_task(error) or error
    if not is_of_missing_checkpoint(raised, checkpoint):
        return error
    return not_read(str(checkpoint), raised).with_traceback(error.__traceback__)


def _missing_file_of_data_task(error: BaseException) -> OSError | None:
    frames = _frames_of_data_task(error)
    raised = frames[-1][2] if frames else ""
    return FileNotFoundError(raised.removeprefix(NO_FILE)) if raised.startswith(NO_FILE) else None


def loss_of_datasets(error: BaseException) -> DatasetNotMade | None:
    """What to describe in place of the error if it says that a process of the datasets has died; otherwise None."""
    texts = [_text_of(link) for link in chain(error) if type(link).__module__.startswith("ray.")]
    death = next((text for text in texts if DATASET_PROCESS.search(text)), None)
    if death is None:
        return None
    is_for_memory = any(word in death for word in MEMORY_MONITOR_WORDS)
    message = "a process of the datasets has died" + (": its node ran out of memory" if is_for_memory else "")
    failure = Failure(OUT_OF_MEMORY if is_for_memory else LOST, message, user_traceback(error))
    return DatasetNotMade(failure).with_traceback(error.__traceback__)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a CUDA or host allocation failed. Torch's exception is recognized by name, without importing torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "out of memory" in _text_of(error)


def is_from_restarted_head(error: BaseException) -> bool:
    """Whether Ray refuses every call of this process, because its head was killed and started again."""
    return any(WRONG_CLUSTER in _text_of(link) for link in chain(error))


def has_lost_connection(error: BaseException) -> bool:
    """Whether Ray says that the network failed or a node died. The call may be Paceline's, Ray's or the user's."""
    types = [type(link) for link in chain(error)]
    return any(one.__name__ in CONNECTION_FAILURES and one.__module__.startswith("ray.") for one in types)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it wraps: causes, and the failures of Ray's workers and controller."""
    seen: list[BaseException] = []
    pending = [error]
    while pending:
        link = pending.pop()
        if any(link is known for known in seen):
            continue
        seen.append(link)
        yield link
        pending += [inner for inner in _wrapped(link) if isinstance(inner, BaseException)]


def _wrapped(error: BaseException) -> list[Any]:
    own = vars(error)  # not getattr: any exception may have a `__getattr__`, and is no failure of Ray's
    of_workers = own.get("worker_failures")
    workers = of_workers.values() if isinstance(of_workers, Mapping) else ()
    return [error.__cause__, own.get("controller_failure"), own.get("health_check_failure"), *workers]


def _handled(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that were being handled when it was raised, as its traceback shows them."""
    seen: list[BaseException] = []
    while error is not None and not any(error is known for known in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
