"""A message and an exit code where standard output cannot be written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

FAILURE = "error: standard output cannot be written: {reason}"


@contextmanager
def checked_output() -> Iterator[None]:
    """Raises SystemExit, with code 1, if what is printed is lost."""
    if sys.stdout is None:
        sys.exit(FAILURE.format(reason="it is closed"))
    try:
        yield
    except OSError:
        _flush("\n")  # tells whether the output is what failed
        raise
    finally:
        _flush()


def _flush(text: str = "") -> None:
    """Write the text, and what is still in the buffer."""
    try:
        if text:
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again when it ends
        sys.exit(FAILURE.format(reason=error.strerror))
