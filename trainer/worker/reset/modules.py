"""The modules that a trial has imported or made, and that the next one has to import or make again."""

import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from trainer.worker.user_code.namesakes import is_inside


def unload_modules(
    before: Mapping[str, ModuleType], folders: Collection[Path], path: Iterable[str]
) -> tuple[set[str], str | None]:
    """Have the user's own modules imported again, since their globals belong to the trial.

    Returns their names, and why the process cannot be used again, or None.

    These are the modules in `folders`, and those that a trial has generated. `before` and `path` are `sys.modules` and
    `sys.path` before the trial. A module that the user's own one, or something that is no module, has replaced is back.
    """
    present = [(name, module) for name, module in sys.modules.items() if module is not None]
    modules = {name: module for name, module in present if before.get(name) is not module}
    own = {name for name, module in modules.items() if any(is_inside(module, folder) for folder in folders)}
    generated = {name for name, module in modules.items() if name not in own and _is_generated(name, module, path)}
    own |= generated | {name for name in modules if name.partition(".")[0] in generated}
    for name in own:
        del sys.modules[name]
    left = _why_replacing_are_used({modules[name]: name for name in own if name in before}, modules)
    missing = {name for name in before if not isinstance(sys.modules.get(name), ModuleType)}
    sys.modules.update({name: before[name] for name in missing})
    return own, left


def _why_replacing_are_used(replacing: Mapping[ModuleType, str], modules: Mapping[str, ModuleType]) -> str | None:
    """Why the process cannot be used again: a library has imported one of the user's modules in place of another one.

    `replacing` are the user's modules that had the names of others, `modules` those that the trial has imported.
    """
    ids = {id(module): name for module, name in replacing.items()}
    libraries = {name: module for name, module in modules.items() if name in sys.modules} if ids else {}
    for name, module in libraries.items():
        used = next(
            (ids[id(value)] for value in list(getattr(module, "__dict__", {}).values()) if id(value) in ids), None
        )
        if used is not None:
            return f"{name} uses the package's module {used!r} in place of another one"
    return None


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
