"""Calls of actors that Ray retries when it may have lost them."""

from collections.abc import Callable
from typing import Any, TypeVar

import ray

Method = TypeVar("Method", bound=Callable[..., Any])


def at_least_once(method: Method) -> Method:
    """Ray retries the call, perhaps much later, when its connection broke, so a retry must change nothing.

    Ray makes other calls once. If one fails in the training function, the attempt is lost; if no caller waits for it,
    the message is lost.
    """
    retried: Method = ray.method(max_task_retries=-1)(method)
    return retried
