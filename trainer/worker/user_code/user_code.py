"""The user's code in a worker: its package is unpacked, and the training function is imported and called."""

import contextlib
import errno
import importlib
import inspect
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import ray

from trainer.unused_folders import lock_in_use, remove_unused
from trainer.worker.node_disk import naming_failed_disk
from trainer.worker.user_code.namesakes import NOT_REPLACED, unload_namesakes
from trainer.worker.user_code.package_listing import restore, write_listing

FOLDER_PREFIX = "paceline-slot."
"""The prefix of a package's folder in a node's temporary directory. The rest of its name is the slot's."""

NO_SHUTDOWN = (
    "a training function must not call ray.shutdown(): it runs in a worker process of Ray, which would be cut off from "
    "the trial; remove the call"
)

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class BadEntrypoint(Exception):
    """The module or function of the entrypoint does not exist. The message says which exist."""


def unpack(content: bytes, filename: str, folder: Path) -> Path:
    """Unpack the package into `folder`. Several processes of a node may do so at the same time."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
        try:
            _extract(content, filename, private)
            write_listing(private)
            _rename_if_first(private, folder)
        finally:
            shutil.rmtree(private, ignore_errors=True)  # as of a package for which the disk has no room
    return folder


def _rename_if_first(private: Path, folder: Path) -> None:
    """Another process may have been first. Any other error would have a caller unpack again without end."""
    try:
        private.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _extract(content: bytes, filename: str, folder: Path) -> None:
    if filename.endswith(".py"):
        (folder / Path(filename).name).write_bytes(content)
    else:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            archive.extractall(folder)  # `zipfile` itself ignores drive letters and `..`


def enter_package(package: Any | None, name: str | None, folder_name: str | None) -> Path | None:
    """Unpack the user's package on this node, in use until this process ends, and work in its folder.

    `package` is an ObjectRef to its content. Returns the folder; None without a package.
    """
    if package is None or name is None or folder_name is None:
        return None
    folder = Path(tempfile.gettempdir()) / folder_name
    lock_package(folder, name, lambda: ray.get(package), restores=False)
    os.chdir(folder)
    return folder


def lock_package(folder: Path, filename: str, content: Callable[[], bytes], *, restores: bool = True) -> int:
    """As `lock_in_use`, with the package in the folder as it was submitted, unless another process uses it already.

    Also removes the packages of slots that were killed, before it unpacks this one. `restores`: what earlier trials
    have changed in the folder is undone. Raises NodeDiskFailed.
    """

    def make() -> None:
        remove_unused_packages(folder.parent)
        unpack(content(), filename, folder)

    def tidy() -> None:
        restore(folder, lambda: _files_in(content(), filename))

    with naming_failed_disk("the package cannot be unpacked"):
        return lock_in_use(folder, make, tidy if restores else None)


def remove_unused_packages(parent: Path) -> None:
    """Remove the packages of slots that were killed."""
    remove_unused(parent.glob(f"{FOLDER_PREFIX}*"), shutil.rmtree)


def _files_in(content: bytes, filename: str) -> dict[str, bytes]:
    """The contents of the package's files, by their paths."""
    if filename.endswith(".py"):
        return {Path(filename).name: content}
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}


def find_function(entrypoint: str, folder: Path | None) -> Callable[..., Any]:
    """The function of `module:function`, imported with `folder` first on the path.

    Raises BadEntrypoint if it does not exist, and whatever the import of the user's code raises.
    """
    module_name, function_name = entrypoint.split(":")
    if folder is not None:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        if module_name.partition(".")[0] in NOT_REPLACED:
            raise BadEntrypoint(_not_replaced(module_name))
        unload_namesakes(folder)
    function = getattr(_import(module_name, folder), function_name, None)
    if not callable(function):
        raise BadEntrypoint(_missing_function(sys.modules[module_name], function_name))
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def refusing_shutdown() -> Iterator[None]:
    """Have `ray.shutdown()` raise: it would cut the worker off from Ray, and the trial would count as lost."""
    shutdown = ray.shutdown

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError(NO_SHUTDOWN)

    ray.shutdown = refuse
    try:
        yield
    finally:
        ray.shutdown = shutdown


@contextlib.contextmanager
def refusing_exit() -> Iterator[None]:
    """Have `os._exit()` raise in this thread: a process that ends counts as lost, without a reason.

    A child that the thread forks ends as usual.
    """
    exit_, own = os._exit, (os.getpid(), threading.get_ident())

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) == own:
            raise RuntimeError(f"os._exit({status}) was called; return, or raise an exception, instead")
        exit_(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = exit_


def call(function: Callable[..., Any], config: dict[str, Any]) -> Any:
    """Call it with the configuration if it takes a positional argument; returns what it returns.

    An argument with a default value, and `*args`, as of a decorator, get the configuration, too, which Ray Train would
    leave out without a warning.
    """
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.kind for p in parameters}
    named = [p for p in parameters if p.kind in POSITIONAL]
    required = [p.name for p in named if p.default is p.empty]
    name = getattr(function, "__name__", type(function).__name__)
    if len(required) > 1:
        raise BadEntrypoint(
            f"{name}({', '.join(required)}) takes {len(required)} arguments; a training function takes one, "
            "the configuration, or none"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadEntrypoint(f"{name} is a generator, because it has a yield; it must be a plain function")
    takes_any = not named and inspect.Parameter.VAR_POSITIONAL in kinds
    if config and not named and not takes_any and inspect.Parameter.VAR_KEYWORD in kinds:
        raise BadEntrypoint(
            f"{name} takes keyword arguments alone; a training function takes one positional argument, the "
            "configuration, or none"
        )
    returned = function(config) if required or takes_any or (named and config) else function()
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns that it was never awaited
        raise BadEntrypoint(f"{name} is an async function; it must be a plain one, which may call asyncio.run()")
    return returned


def _import(module_name: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but something that it imports does not
        raise BadEntrypoint(_missing_module(module_name, folder)) from None


def _not_replaced(module_name: str) -> str:
    top = module_name.partition(".")[0]
    return f"rename the entrypoint's module {top!r}: the worker process itself uses another module of this name"


def _missing_module(module_name: str, folder: Path | None) -> str:
    if folder is None:
        return f"no module '{module_name}' on the cluster, and the trial has no package"
    files = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    found = sorted({".".join(file.parts).removesuffix(".__init__") for file in files})
    return f"the package has no module '{module_name}'; it has: {', '.join(found[:20]) or 'no .py file'}"


def _missing_function(module: ModuleType, function_name: str) -> str:
    own = [name for name, value in vars(module).items() if _is_candidate(value, module)]
    file = os.path.basename(getattr(module, "__file__", None) or module.__name__)  # noqa: PTH119 - a name, not a path
    has = f"it has: {', '.join(sorted(own))}" if own else "it has none"
    return f"{file} has no function '{function_name}'; {has}"


def _is_candidate(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not re.match("_", value.__name__)
