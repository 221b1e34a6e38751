"""Checks the code of a specification when it is submitted, by reading the package without running it."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from search.mistakes import Mistake
from service.errors import Invalid, NotFound
from service.operations.packages.entrypoint import (
    MAX_SOURCE_BYTES,
    TRAINING_FUNCTION,
    mistakes_in_entrypoint,
    module_file,
    takes_no_argument,
)
from service.operations.packages.package_store import CheckedPackage, find_package
from service.runtime.context import Context
from service.specification.cross_field_checks.dataset_checks import missing_files
from service.specification.cross_field_checks.runtime_env_checks import mistakes_in_requirements, package_warnings
from trainer.wire import REQUIREMENTS_FILE, DatasetFunction, Trainer

DATASET_FUNCTION = ("trainer", "datasets", "entrypoint")
VALIDATION_FUNCTION = ("trainer", "validation", "entrypoint")


@dataclass(frozen=True)
class SubmittedCode:
    """What is checked of a package: the names of its files, and the content of those that the trainer names.

    Of each content there is up to one byte more than `MAX_SOURCE_BYTES`.
    """

    files: list[str]
    contents: dict[str, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.contents.values()))


def submitted_code(context: Context, trainer: Trainer, package_id: str, sent: CheckedPackage | None) -> SubmittedCode:
    """The code of the package sent with the spec, or else of the stored one. Raises Invalid if none is stored."""
    package = _stored(context, package_id) if sent is None else sent
    named = {REQUIREMENTS_FILE, *(module_file(package.files, one) for one in _entrypoints(trainer))}
    return SubmittedCode(package.files, _contents(package, [name for name in package.files if name in named]))


def _stored(context: Context, package_id: str) -> CheckedPackage:
    try:
        return find_package(context, package_id)
    except NotFound as error:
        raise Invalid([Mistake(("trainer", "package"), error.detail)]) from error


def check_code(trainer: Trainer, code: SubmittedCode, *, has_params: bool) -> list[Mistake]:
    """Returns warnings. Raises Invalid. Holds the interpreter for up to three seconds for each megabyte of code."""
    files, contents = code.files, code.contents
    mistakes = [*missing_files(trainer, files)]
    mistakes += mistakes_in_requirements(trainer, files, contents.get(REQUIREMENTS_FILE))
    if trainer.entrypoint is not None:
        mistakes += mistakes_in_entrypoint(files, contents, trainer.entrypoint)
    if isinstance(trainer.datasets, DatasetFunction):
        mistakes += mistakes_in_entrypoint(files, contents, trainer.datasets.entrypoint, DATASET_FUNCTION)
    if trainer.validation is not None:
        validation = trainer.validation.entrypoint
        mistakes += mistakes_in_entrypoint(files, contents, validation, VALIDATION_FUNCTION, most_arguments=None)
    if mistakes:
        raise Invalid(mistakes)
    return [*package_warnings(trainer, files), *(_function_warnings(trainer.entrypoint, code) if has_params else ())]


def _function_warnings(entrypoint: str | None, code: SubmittedCode) -> list[Mistake]:
    filename = None if entrypoint is None else module_file(code.files, entrypoint)
    if entrypoint is None or filename is None:
        return []
    function = entrypoint.partition(":")[2]
    if not takes_no_argument(code.contents[filename], function):
        return []
    advice = f"let it take the configuration: def {function}(config)"
    return [Mistake(TRAINING_FUNCTION, f"{filename}: {function} takes no argument, so all trials run alike; {advice}")]


def _entrypoints(trainer: Trainer) -> Iterator[str]:
    if trainer.entrypoint is not None:
        yield trainer.entrypoint
    if isinstance(trainer.datasets, DatasetFunction):
        yield trainer.datasets.entrypoint
    if trainer.validation is not None:
        yield trainer.validation.entrypoint


def _contents(package: CheckedPackage, names: Sequence[str]) -> dict[str, bytes]:
    if package.filename.endswith(".py"):
        return dict.fromkeys(names, package.body[: MAX_SOURCE_BYTES + 1])
    contents: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(package.body)) as archive:
        for name in names:
            with archive.open(name) as file:
                contents[name] = file.read(MAX_SOURCE_BYTES + 1)
    return contents
