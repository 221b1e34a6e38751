"""Errors of a node's disk, where Paceline keeps a trial's package and other files: another node may have room."""

import contextlib
import errno
import tempfile
from collections.abc import Iterator

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError

OF_NODE = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS})
"""What no package causes by its files, as it does by a name that is too long."""

PROBE_BYTES = 64 * 1024**2
"""What a disk that is not full has room for."""

NODE_ADVICE = "the node's temporary directory must have room and work"


OBJECT_STORE_ERRORS = (ObjectStoreFullError, OutOfDiskError)

OBJECT_STORE_FULL = (
    "the object store of a node is full, and so is the disk to which Ray moves its objects (it leaves 5 % of it free): "
    "keep fewer or smaller objects, free space in Ray's temporary directory, or start Ray with a larger store "
    "(--object-store-memory)"
)


class NodeDiskFailed(RuntimeError):
    """The disk of the node on which a rank runs is full, or fails."""


class ObjectStoreFailed(NodeDiskFailed):
    """Ray's object store on that node finds no room on the disk."""


@contextlib.contextmanager
def naming_failed_disk(what: str) -> Iterator[None]:
    """Raise NodeDiskFailed in place of an error of the disk; `what` says what has failed. User code must not run in it.

    The object store, from which a package comes, also writes to the disk.
    """
    try:
        yield
    except OBJECT_STORE_ERRORS as error:
        raise ObjectStoreFailed(f"{what}: the disk of the node's object store is full; {NODE_ADVICE}") from error
    except OSError as error:
        if error.errno not in OF_NODE:
            raise
        raise NodeDiskFailed(f"{what}: {error}; {NODE_ADVICE}") from error


def has_room(*, of_object_store: bool = False) -> bool:
    """Whether the disk takes files. A trial asks once it has removed what it wrote, which may have filled the disk.

    Written to, because what a file system says of its free space knows no quotas and no errors of the disk.
    `of_object_store`: whether Ray takes objects, for which it wants more room on the disk than files need.
    """
    return _takes_objects() if of_object_store else _takes_files()


def _takes_objects() -> bool:
    try:
        ray.put(bytes(PROBE_BYTES))
    except OBJECT_STORE_ERRORS:
        return False
    return True


def _takes_files() -> bool:
    try:
        with tempfile.TemporaryFile() as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno not in OF_NODE
    return True
