"""The checkpoint that an attempt resumes from, as `ray.train.get_checkpoint()` returns it.

It is used in the worker process and travels there by value.
"""

import os
import time
from collections.abc import Callable

from pyarrow.fs import LocalFileSystem
from ray.train import Checkpoint

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)

OnReadError = Callable[[str, OSError], Exception]
"""Gets the path of a checkpoint that could not be read, and the error; returns what the user's call raises."""


class ResumedCheckpoint(Checkpoint):  # type: ignore[misc]
    """A busy bucket refuses calls, and pyarrow repeats all of them but the reading of a file: so this does."""

    def __init__(self, path: str, on_read_error: OnReadError) -> None:
        super().__init__(path)
        self._on_read_error = on_read_error

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """As Ray's. Raises FileNotFoundError if there is no such checkpoint, and else what `on_read_error` returns."""
        pauses = iter(() if isinstance(self.filesystem, LocalFileSystem) else PAUSES_SECONDS)
        while True:
            try:
                return str(super().to_directory(path))
            except FileNotFoundError:
                raise
            except OSError as error:
                if (pause := next(pauses, None)) is None:
                    raise self._on_read_error(self.path, error) from error
            time.sleep(pause)
