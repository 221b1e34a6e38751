"""A process that the user's code has forked with `os.fork()` ends where that code ends, as in a plain script."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from trainer.worker.failures import user_traceback


@contextlib.contextmanager
def ending_forked_children() -> Iterator[None]:
    """A child that leaves the context ends there: what follows is for the process that has entered it."""
    process, error = os.getpid(), None
    try:
        yield
    except BaseException as raised:
        if os.getpid() == process:
            raise
        error = raised
    if os.getpid() != process:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """End without the handlers of `atexit`, which are those of Ray's worker process."""
    code = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        code = 1
        text = f"{error.code}\n" if isinstance(error, SystemExit) else user_traceback(error)
        with contextlib.suppress(Exception):
            sys.stderr.write(text)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
