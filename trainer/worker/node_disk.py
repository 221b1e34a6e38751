"""Errors of a node's disk, where Paceline keeps a trial's package and other files: another node may have room."""

import contextlib
import errno
from collections.abc import Iterator

from ray.exceptions import OutOfDiskError

OF_NODE = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS})
"""What no package causes by its files, as it does by a name that is too long."""

NODE_ADVICE = "the node's temporary directory must have room and work"


class NodeDiskFailed(RuntimeError):
    """The disk of the node on which a rank runs is full, or fails."""


@contextlib.contextmanager
def naming_failed_disk(what: str) -> Iterator[None]:
    """Raise NodeDiskFailed in place of an error of the disk; `what` says what has failed. User code must not run in it.

    The object store, from which a package comes, also writes to the disk.
    """
    try:
        yield
    except OutOfDiskError as error:
        raise NodeDiskFailed(f"{what}: the disk of the node's object store is full; {NODE_ADVICE}") from error
    except OSError as error:
        if error.errno not in OF_NODE:
            raise
        raise NodeDiskFailed(f"{what}: {error}; {NODE_ADVICE}") from error
