"""Standard output as the commands need it, or a message and an exit code where it cannot be written."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

FAILURE = "error: standard output cannot be written: {reason}"


@contextmanager
def checked_output() -> Iterator[None]:
    r"""Show what the output's encoding lacks as `\xb7`. Raises SystemExit, with code 1, if what is printed is lost."""
    if sys.stdout is None:
        sys.exit(FAILURE.format(reason="it is closed"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
