"""The datasets of a trial: read as the specification says, or made by a function of the user's package."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.package_files import is_in_package
from trainer.worker.failures import (
    CANNOT_START,
    USER_ERROR,
    DatasetNotMade,
    Failure,
    headline,
)
from trainer.worker.logs.masker import Masker
from trainer.worker.logs.sent_output import sending_output
from trainer.worker.user_code.namesakes import is_inside
from trainer.worker.user_code.user_code import BadEntrypoint, call, enter_package, find_function, refusing_exit
from trainer.worker.user_code.user_frames import user_location, user_traceback

Answer = tuple[Any, dict[str, Any] | None]
"""A value, or else the fields of a `Failure`: an exception of our own class could not be read in another process."""


@dataclass(frozen=True)
class DatasetsJob:
    """What the datasets of an attempt are made of. `datasets` is `trainer.wire.Datasets` as JSON.

    `constants`: the config without the trial's parameters. `package` is an ObjectRef to the content of the user's
    package. `run_by` is the name of the slot, and `store` that of the store of the experiment's materialized datasets.
    What the function prints is sent as that of rank `log_rank`.
    """

    run: str
    run_by: str
    slot: Any
    store: str
    datasets: dict[str, Any]
    config: dict[str, Any]
    constants: dict[str, Any]
    package: Any | None
    package_name: str | None
    package_folder: str | None
    has_secrets: bool
    log_rank: int

    @property
    def function(self) -> str | None:
        """The entrypoint of the function that makes them; None if they are read from files."""
        entrypoint = self.datasets.get("entrypoint")
        return entrypoint if isinstance(entrypoint, str) else None

    def has_materialized(self) -> bool:
        parts = [self.datasets] if self.function is not None else self.datasets.values()
        return any(one["materialize"] for one in parts)

    def unpack(self) -> Path | None:
        """The folder with the user's package on this node, in use until this process ends; None without a package."""
        return enter_package(self.package, self.package_name, self.package_folder)


def make_datasets(
    job: DatasetsJob, folder: Path | None, secrets: Mapping[str, str], *, materialized: bool
) -> dict[str, Any]:
    """The datasets of the job that are to be materialized, or the others. Raises DatasetNotMade."""
    if (entrypoint := job.function) is not None:
        if materialized is not job.datasets["materialize"]:
            return {}
        with sending_output(job.slot, job.run, job.log_rank, Masker(secrets.values())):
            return _made_by(entrypoint, job.constants if materialized else job.config, folder)
    chosen = {name: one for name, one in job.datasets.items() if one["materialize"] is materialized}
    return {name: _read(name, one, folder) for name, one in chosen.items()}


def _read(name: str, spec: Mapping[str, Any], folder: Path | None) -> Any:
    reader = getattr(import_module("ray.data"), f"read_{spec['read']}")
    paths = [_absolute(path, folder) for path in spec["paths"]]
    options = dict(spec["options"])
    if any(is_in_package(path) for path in spec["paths"]):  # the package is unpacked here, and not on every node
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options["ray_remote_args"] = {"scheduling_strategy": here, **(options.get("ray_remote_args") or {})}
    try:
        return reader(paths, **options)
    except Exception as error:
        raise DatasetNotMade(_unreadable(name, spec, reader, error)) from error


def _absolute(path: str, folder: Path | None) -> str:
    return str(folder / path) if is_in_package(path) and folder is not None else path


def _unreadable(name: str, spec: Mapping[str, Any], reader: Callable[..., Any], error: Exception) -> Failure:
    where, kind, advice = f"trainer.datasets.{name}", CANNOT_START, ""
    match error:
        case FileNotFoundError():
            where, advice = f"{where}.paths", "; every node must be able to read it"
        case ImportError():
            where, advice = f"{where}.read", "; install it on the nodes"
        case TypeError() if unknown := sorted(set(spec["options"]) - set(inspect.signature(reader).parameters)):
            where = f"{where}.options.{unknown[0]}"
            advice = f"; {reader.__name__} takes {', '.join(list(inspect.signature(reader).parameters)[1:])}"
        case OSError():
            where, kind = f"{where}.paths", USER_ERROR
    return Failure(kind, f"{where}: {headline(error)}{advice}", user_traceback(error))


def _made_by(entrypoint: str, config: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    kind = CANNOT_START
    try:
        function = find_function(entrypoint, folder)
        kind = USER_ERROR
        with refusing_exit():
            made = call(function, config)
    except BaseException as error:  # sys.exit() and worse are failures of the user's code
        kind = CANNOT_START if isinstance(error, BadEntrypoint) else kind
        location = user_location(error, str(folder) if folder else None)
        message = f"{headline(error)} (dataset function {entrypoint}{', ' + location if location else ''})"
        raise DatasetNotMade(Failure(kind, message, user_traceback(error))) from error
    _travel_by_value(folder)
    return _checked(entrypoint, made)


def _checked(entrypoint: str, made: Any) -> dict[str, Any]:
    dataset = import_module("ray.data").Dataset
    if isinstance(made, dict) and made and all(isinstance(one, dataset) for one in made.values()):
        return made
    what = type(made).__name__
    if isinstance(made, dict):
        what = "{" + ", ".join(f"{name!r}: {type(one).__name__}" for name, one in made.items()) + "}"
    message = (
        f"the dataset function {entrypoint} returned {what}; it must return datasets of Ray Data by name, as in "
        '{"train": ray.data.read_parquet(path)}'
    )
    raise DatasetNotMade(Failure(CANNOT_START, message))


def _travel_by_value(folder: Path | None) -> None:
    """Have the package's functions, which datasets call on other nodes, travel whole: its modules are not there."""
    for module in list(sys.modules.values()):
        if folder is not None and is_inside(module, folder):
            cloudpickle.register_pickle_by_value(module)


def no_dataset(name: str, known: list[str] | None) -> Failure:
    """The training function asked for a dataset that is not there. `known`: None without any in the specification."""
    if known is None:
        example = f"trainer.datasets: {{{name}: {{read: parquet, paths: [/data/{name}]}}}}"
        message = f"there is no dataset {name!r}, because the specification has none; add {example}"
    else:
        message = f"there is no dataset {name!r}; the trial has: {', '.join(sorted(known))}"
    return Failure(CANNOT_START, message)


def value_of(answer: Answer) -> Any:
    """Raises DatasetNotMade."""
    value, failure = answer
    if failure is not None:
        raise DatasetNotMade(Failure(**failure))
    return value


def shard_of(name: str | None, answer: Answer | None) -> Any:
    """The iterator in a dataset server's answer, which is None without a server. Raises DatasetNotMade."""
    if answer is None:
        raise DatasetNotMade(no_dataset(name or "train", None))
    return value_of(answer)
