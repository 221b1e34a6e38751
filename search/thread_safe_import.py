"""Imports of heavy libraries that are loaded only when they are needed."""

import threading
from importlib import import_module

_lock = threading.Lock()
_imported: set[str] = set()


def import_modules(*modules: str) -> None:
    """Import the modules, one thread at a time.

    Where modules import each other, as scipy's do, two threads that import at the same time can see modules that are
    only partly initialized, and a proposal fails. So call this before Optuna imports such a library in the middle of a
    proposal.
    """
    if _imported.issuperset(modules):
        return
    with _lock:
        for module in modules:
            import_module(module)
        _imported.update(modules)
