"""Libraries that are too heavy to be loaded before somebody needs them."""

import threading
from importlib import import_module

_loading = threading.Lock()
_loaded: set[str] = set()


def loaded(*modules: str) -> None:
    """Import them, one thread at a time.

    Python lets threads that import at once see each other's modules half made where those import each other, as scipy's
    do: a proposal then failed for no fault of its own. Whoever needs such a library says so before Optuna imports it in
    the middle of something.
    """
    if _loaded.issuperset(modules):
        return
    with _loading:
        for module in modules:
            import_module(module)
        _loaded.update(modules)
