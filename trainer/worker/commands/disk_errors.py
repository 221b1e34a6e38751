"""Errors of the disk where a command saves and writes its metrics: whether they are the user's, or the node's."""

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trainer.open_file_limit import open_file_advice
from trainer.worker.failures import BadCommandFile
from trainer.worker.node_disk import NODE_ADVICE, NodeDiskFailed

OF_THE_USER = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
    }
)
"""What a command causes by the files that it makes. Everything else, such as a full disk, another node may not have."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def naming_disk_errors(what: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Have a function raise BadCommandFile or NodeDiskFailed in place of an OSError; `what` says what has failed."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def named(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except OSError as error:
                if error.errno in OF_THE_USER:
                    raise BadCommandFile(f"{what}: {error}") from error
                is_disk = open_file_advice(str(error), is_own=True) is None  # else `failures` says what to change
                raise NodeDiskFailed(f"{what}: {error}{f'; {NODE_ADVICE}' if is_disk else ''}") from error

        return named

    return decorate
