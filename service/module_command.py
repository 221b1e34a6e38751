"""The commands of processes of this installation."""

import sys
from collections.abc import Sequence


def module_command(module: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a module with these arguments; `options` are Python's own.

    Modules in the working directory are not found: a user's `trainer.py` there would hide Paceline's package. Not by
    PYTHONSAFEPATH, which user code would inherit through Ray.
    """
    return [sys.executable, "-P", *options, "-m", module, *arguments]
