"""A system for the time of a run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.system.stack import Home, Size, Stack
from tests.chaos.system.up_stack import UpHome, UpStack


@contextmanager
def running(size: Size, keep: Path | None = None) -> Iterator[Stack]:
    """Yield a running stack. Afterwards everything is removed, except for the files when `keep` is given."""
    # Not below pytest's own directory: Ray's sockets need a short path, and PostgreSQL one open to another user.
    root = keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    stack = UpStack(size, UpHome(root)) if size.up else Stack(size, Home(root))
    root.chmod(0o755)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
