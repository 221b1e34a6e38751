"""Entrypoints that name a file, as in `train.py:train_fn`, where they have to name a module."""

import re
from collections.abc import Iterator

from search.mistakes import Mistake
from trainer.wire import DatasetFunction, Trainer

_NAMES_FILE = re.compile(r"(?:\./)?(?P<stem>[A-Za-z_][\w./]*?)(?:\.py)?:(?P<function>[A-Za-z_]\w*)")
_NAMES_MODULE = re.compile(r"\w+(\.\w+)*:\w+")


def as_module(entrypoint: str) -> str | None:
    """`src/train.py:train_fn` as `src.train:train_fn`; None for what does not name a file."""
    found = _NAMES_FILE.fullmatch(entrypoint)
    module = found and f"{found['stem'].replace('/', '.')}:{found['function']}"
    return module if module != entrypoint and module and _NAMES_MODULE.fullmatch(module) else None


def file_mistake(module: str) -> str:
    return f"names a file, not a module: write {module}"


def mistakes_in_entrypoint_names(trainer: Trainer) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    datasets = trainer.datasets.entrypoint if isinstance(trainer.datasets, DatasetFunction) else None
    validation = trainer.validation.entrypoint if trainer.validation is not None else None
    named = {(): trainer.entrypoint, ("datasets",): datasets, ("validation",): validation}
    for parent, entrypoint in named.items():
        if entrypoint is not None and (module := as_module(entrypoint)) is not None:
            yield Mistake((*parent, "entrypoint"), file_mistake(module))
