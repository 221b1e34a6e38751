"""What to say of a process, or a node, that can open no more files. Neither a disk nor a storage is the cause of that.

It runs in the worker processes, too, and travels there by value.
"""

import errno
import os
import resource

OF_PROCESS, OF_NODE = os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)
"""How the errors of Python, of pyarrow and of torch say it, of which some have no `errno`. The second has the first."""


def has_process_too_many(error: str) -> bool:
    """Whether the error with this text says that the process that has got it keeps too many files open."""
    return OF_PROCESS in error.replace(OF_NODE, "")


def has_node_too_many(error: str) -> bool:
    """Whether the error with this text says that all processes of a node together keep too many files open."""
    return OF_NODE in error


def open_file_advice(error: str, *, is_own: bool) -> str | None:
    """What to change after the error with this text; None for any other error.

    `is_own`: the caller's process has got it, and not one with a limit of its own.
    """
    if has_process_too_many(error):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"the process has reached its limit of open files ({f'{limit:,}, by ' if is_own else ''}ulimit -n): close "
            "files, sockets and pipes that are no longer used, or start the Ray node with a higher limit"
        )
    if has_node_too_many(error):
        return "all processes of the node together have reached its limit of open files (fs.file-max)"
    return None
