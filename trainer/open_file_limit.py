"""What to say of a process, or a node, that can open no more files. Neither a disk nor a storage is the cause of that.

It runs in the worker processes, too, and travels there by value.
"""

import errno
import os
import resource

TOO_MANY = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
"""How the errors of Python, of pyarrow and of torch say it, of which some have no `errno`."""


def open_file_advice(error: str) -> str | None:
    """What to change after the error with this text, which the caller's process has got; None for any other error."""
    of_process, of_node = (words in error for words in TOO_MANY)
    if of_process:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"the process has reached its limit of open files ({limit:,}, by ulimit -n): close files, sockets and "
            "pipes that are no longer used, or start the Ray node with a higher limit"
        )
    return "all processes of the node together have reached its limit of open files (fs.file-max)" if of_node else None
