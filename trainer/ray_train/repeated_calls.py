"""Calls of actors that Ray makes again when it may have lost them."""

from collections.abc import Callable
from typing import Any, TypeVar

import ray

Method = TypeVar("Method", bound=Callable[..., Any])


def at_least_once(method: Method) -> Method:
    """Ray calls it again when the connection broke during the call, so a repetition must change nothing.

    It may come at any later time. Other calls are made once, and fail then: in the training function, that would lose
    the attempt, and without a caller that waits the message.
    """
    repeated: Method = ray.method(max_task_retries=-1)(method)
    return repeated
