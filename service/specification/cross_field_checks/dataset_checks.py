"""What the datasets of a specification require and exclude."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from search.mistakes import Mistake
from trainer.wire import DatasetFiles, DatasetFunction, Kind, Trainer, UnionMember, is_in_package

RUNS_FUNCTIONS = [kind for kind in Kind if kind not in (Kind.COMMAND, Kind.EXTERNAL)]
IN_SPECIFICATION = ("trainer", "datasets")


def mistakes_in_datasets(trainer: Trainer) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    if trainer.datasets is None:
        if trainer.data is not None:
            yield Mistake(("data",), "needs trainer.datasets, and there are none")
        return
    if trainer.kind not in RUNS_FUNCTIONS:
        yield Mistake(("datasets",), f"are for training functions; kind {trainer.kind} reads its data itself")
    if isinstance(trainer.datasets, dict):
        yield from _mistakes_in_files(trainer.datasets, trainer.package)
        yield from _mistakes_in_split(trainer.datasets, trainer.data.split if trainer.data is not None else None)


def _mistakes_in_files(datasets: dict[str, DatasetFiles], package: str | None) -> Iterator[Mistake]:
    for name, dataset in datasets.items():
        for index, path in enumerate(dataset.paths):
            if is_in_package(path) and package is None:
                reason = "is relative, so it would be in the package, and there is none: make it absolute, or a URI"
                yield Mistake(("datasets", name, "paths", index), reason)
        for argument in ("paths", "path", "uri"):
            if argument in dataset.options:
                yield Mistake(("datasets", name, "options", argument), "must be absent: the dataset's `paths` sets it")


def _mistakes_in_split(datasets: dict[str, DatasetFiles], split: str | Sequence[str] | None) -> Iterator[Mistake]:
    if split is None:
        return
    for index, name in enumerate(split if split != "all" else ()):
        if name not in datasets:
            yield Mistake(("data", "split", index), f"there is no dataset {name!r}; there are: {', '.join(datasets)}")
    for name, dataset in datasets.items():
        if not dataset.split and (split == "all" or name in split):
            message = "is false, but data.split names this dataset: change one of them"
            yield Mistake(("datasets", name, "split"), message)


def missing_files(trainer: Trainer, files: Sequence[str]) -> Iterator[Mistake]:
    """The relative paths that a package with these files does not have. Paths are those of the specification."""
    if not isinstance(trainer.datasets, dict):
        return
    for name, dataset in trainer.datasets.items():
        for index, path in enumerate(dataset.paths):
            folder = f"{path.rstrip('/')}/"
            if is_in_package(path) and path not in files and not any(file.startswith(folder) for file in files):
                reason = f"the package has no such file or folder; it has: {', '.join(files[:20])}"
                yield Mistake((*IN_SPECIFICATION, name, "paths", index), reason)


def in_users_words(mistake: Mistake) -> Mistake:
    """Removes what pydantic puts into the path of a mistake in the datasets."""
    path = mistake.path
    is_inside = path[:2] == IN_SPECIFICATION and path[2:3] and path[2] in set(UnionMember)
    return Mistake((*path[:2], *path[3:]), mistake.message) if is_inside else mistake


def known_fields(parent: Sequence[str | int]) -> list[str]:
    """The fields of an object in the datasets; empty for a path to anything else."""
    models: dict[int, type[BaseModel]] = {2: DatasetFunction, 3: DatasetFiles}
    is_inside = tuple(parent[:2]) == IN_SPECIFICATION and len(parent) in models
    return sorted(models[len(parent)].model_fields) if is_inside else []
