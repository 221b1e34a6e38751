"""Modules of the user's package that have the name of a loaded module, such as `statistics`.

The user's win, as with `python train.py`, where the script's folder comes first. What has imported the loaded module
already keeps it, and `Baseline.restore` puts it back after the trial.
"""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

LOADED_AT_START = """
    __future__ abc builtins codecs collections contextlib copyreg encodings enum errno functools genericpath importlib
    io itertools keyword marshal operator os pathlib posix posixpath re reprlib site stat sys time types urllib warnings
    zipimport
"""
"""Modules that Python loads when it starts: `python train.py` does not replace them either."""

USED_BY_PROCESS = """
    asyncio concurrent copy ctypes dataclasses datetime inspect json logging multiprocessing pickle platform selectors
    signal socket ssl struct subprocess tempfile threading traceback typing uuid weakref
    cloudpickle google grpc msgpack numpy pandas psutil pyarrow ray torch yaml
"""
"""Ray and Paceline import these, or find classes by their names, also while the training function runs."""

NOT_REPLACED = frozenset(f"{LOADED_AT_START} {USED_BY_PROCESS}".split())
"""Modules without which the worker process could not go on."""

logger = logging.getLogger("paceline")


def unload_namesakes(folder: Path) -> None:
    """Unload the modules from elsewhere that have the names of modules in the folder, which is first on the path.

    Logs a warning about each that cannot be replaced.
    """
    for name in sorted(_modules_in(folder)):
        loaded = sys.modules.get(name)
        if loaded is None or is_inside(loaded, folder):
            continue
        if name in NOT_REPLACED:
            message = "the package has a module %r, but the process needs the other one of this name: rename yours"
            logger.warning(message, name)
            continue
        for one in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
            del sys.modules[one]


def _modules_in(folder: Path) -> Iterator[str]:
    """A folder without `__init__.py` is none: Python prefers a module from elsewhere to it."""
    for path in folder.iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            yield path.stem if path.suffix == ".py" else path.name


def is_inside(module: ModuleType, folder: Path) -> bool:
    """Whether its file, or one of its folders, is below the folder, whatever links lead there."""
    file = getattr(module, "__file__", None)
    paths = [file] if isinstance(file, str) else [one for one in _folders_of(module) if isinstance(one, str)]
    real_folder = os.path.realpath(folder)
    return any(os.path.realpath(path).startswith(f"{real_folder}{os.sep}") for path in paths)


def _folders_of(module: ModuleType) -> list[object]:
    try:
        return list(getattr(module, "__path__", []))
    except TypeError:  # of a mock
        return []
