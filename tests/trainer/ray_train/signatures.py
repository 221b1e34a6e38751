"""What the tests of Ray's internals look at."""

import inspect
from typing import Any


def source(thing: Any) -> str:
    return inspect.getsource(thing)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)
