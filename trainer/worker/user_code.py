"""The user's code in a worker: unpacked, first on the path, imported, asked for its function."""

import contextlib
import fcntl
import importlib
import inspect
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

# In a node's temporary directory, followed by the slot's name.
FOLDER_PREFIX = "paceline-slot."
# A folder so young may still be written by a process that does not hold it yet.
UNPACKING_SECONDS = 600.0


class BadEntrypoint(Exception):
    """There is no such module or function; says what there is."""


def unpack(content: bytes, filename: str, folder: Path) -> Path:
    """The package below `folder`, which several processes of a node may ask for at once."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
        _write(content, filename, private)
        try:
            private.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(private)
    return folder


def hold(folder: Path, fill: Callable[[], Any]) -> int:
    """Mark `folder` as used by this process, after `fill()` if it is not there. Returns what `os.close` ends that with.

    The kernel ends it, too, when the process dies, however it does: so a folder that nobody holds is nobody's.
    """
    while True:
        if not folder.exists():
            remove_unused(folder.parent)
            fill()
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is_at(descriptor, folder):
                return descriptor
            os.close(descriptor)  # it was removed before it was held


def _is_at(descriptor: int, folder: Path) -> bool:
    return folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat())


def remove_unused(parent: Path) -> None:
    """Remove the packages that slots have left which were killed. Where one is held, or may just be, it stays."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if time.time() - os.fstat(descriptor).st_mtime > UNPACKING_SECONDS:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _write(content: bytes, filename: str, folder: Path) -> None:
    if filename.endswith(".py"):
        (folder / Path(filename).name).write_bytes(content)
        return
    with zipfile.ZipFile(BytesIO(content)) as archive:
        archive.extractall(folder)  # leaves out drive letters and `..` by itself


def find_function(entrypoint: str, folder: Path | None) -> Callable[..., Any]:
    """The function of `module:function`, imported with `folder` first on the path.

    Raises BadEntrypoint where there is no such thing, and whatever the import of the user's code raises.
    """
    module_name, function_name = entrypoint.split(":")
    if folder is not None:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        _forget_namesake(module_name, folder)
    function = getattr(_import(module_name, folder), function_name, None)
    if not callable(function):
        raise BadEntrypoint(_missing_function(sys.modules[module_name], function_name))
    return function  # type: ignore[no-any-return]


def call(function: Callable[..., Any], config: dict[str, Any]) -> None:
    """Call it as Ray Train would: with the configuration if it takes one, without if it takes nothing."""
    required = [p for p in inspect.signature(function).parameters.values() if _is_required(p)]
    if len(required) > 1:
        names = ", ".join(p.name for p in required)
        raise BadEntrypoint(
            f"{function.__name__}({names}) takes {len(required)} arguments; a training function takes one, "
            "the configuration, or none"
        )
    if required:
        function(config)
    else:
        function()


def _is_required(parameter: inspect.Parameter) -> bool:
    named = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return named and parameter.default is parameter.empty


def _forget_namesake(module_name: str, folder: Path) -> None:
    """Let the package's module win over one of the same name that this process has loaded already."""
    top = module_name.partition(".")[0]
    loaded = sys.modules.get(top)
    if loaded is not None and not is_inside(loaded, folder):
        for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
            del sys.modules[name]


def is_inside(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    paths = [file] if file else list(getattr(module, "__path__", []))
    return any(str(path).startswith(f"{folder}{os.sep}") for path in paths)


def _import(module_name: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise BadEntrypoint(_missing_module(module_name, folder)) from None


def _missing_module(module_name: str, folder: Path | None) -> str:
    if folder is None:
        return f"no module '{module_name}' on the cluster, and the trial has no package"
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.py"))
    return f"the package has no module '{module_name}'; it has: {', '.join(found[:20]) or 'no .py file'}"


def _missing_function(module: ModuleType, function_name: str) -> str:
    own = [name for name, value in vars(module).items() if _is_candidate(value, module)]
    file = os.path.basename(getattr(module, "__file__", None) or module.__name__)  # noqa: PTH119 - a name, not a path
    has = f"it has: {', '.join(sorted(own))}" if own else "it has none"
    return f"{file} has no function '{function_name}'; {has}"


def _is_candidate(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not re.match("_", value.__name__)
