"""The modules that a trial has imported or made, and that the next one has to import or make again."""

import os
import sys
import tempfile
from collections.abc import Collection, Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from trainer.worker.user_code import is_inside


def unload_modules(names: set[str], folders: Collection[Path], path: Iterable[str]) -> set[str]:
    """Have the user's own modules imported again, since their globals belong to the trial. Returns their names.

    These are the modules in `folders`, and those that a trial has generated. `path` is `sys.path` before the trial.
    """
    modules = {name: sys.modules[name] for name in names if sys.modules[name] is not None}
    own = {name for name, module in modules.items() if any(is_inside(module, folder) for folder in folders)}
    generated = {name for name, module in modules.items() if name not in own and _is_generated(name, module, path)}
    own |= generated | {name for name in modules if name.partition(".")[0] in generated}
    for name in own:
        del sys.modules[name]
    return own


def _is_generated(name: str, module: ModuleType, path: Iterable[str]) -> bool:
    """Whether its file is temporary or gone, or it has neither a file nor a loader.

    Libraries make such modules, too, inside of themselves or with an underscore, such as those of Cython.
    A compiled module can often not be loaded twice.
    """
    if "." in name or name.startswith("_") or type(module) is not ModuleType:
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return _is_bare(module) and name != "cython_runtime"
    if file.endswith(tuple(EXTENSION_SUFFIXES)):
        return False
    real = os.path.realpath(file)
    if os.path.exists(real) and not _is_below(real, [tempfile.gettempdir()]):  # noqa: PTH110 - of many, it takes less
        return False
    return not _is_below(real, path)


def _is_below(file: str, folders: Iterable[str]) -> bool:
    return file.startswith(tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders if folder))


def _is_bare(module: ModuleType) -> bool:
    return all(getattr(module, name, None) is None for name in ("__loader__", "__spec__", "__path__"))
