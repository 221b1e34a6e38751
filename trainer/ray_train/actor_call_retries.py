"""Calls of actors that Ray makes again when it may have lost them."""

from collections.abc import Callable
from typing import Any, TypeVar

import ray

Method = TypeVar("Method", bound=Callable[..., Any])


def at_least_once(method: Method) -> Method:
    """Ray repeats the call, perhaps much later, when its connection broke, so a repetition must change nothing.

    Ray makes other calls once. If one fails in the training function, the attempt is lost; if no caller waits for it,
    the message is lost.
    """
    repeated: Method = ray.method(max_task_retries=-1)(method)
    return repeated
