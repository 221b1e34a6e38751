"""Hooks into the two places where Ray Train's worker group creates actors.

Both stand in for a name of Ray's module, so only one worker group of the process may start at a time.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.train.v2._internal.execution.worker_group import worker_group

from trainer.ray_train.synchronization import synchronization_actor_class

ActorOr = Callable[[Callable[[], Any]], Any]
"""Is called with the function that creates the actor, and returns the actor: a new one, or one that is kept."""


@contextlib.contextmanager
def synchronization_actor_created_by(actor_or: ActorOr) -> Iterator[None]:
    """For `WorkerGroup._start_impl`. The actor is ours in place of Ray's."""
    with _replaced("SynchronizationActor", _ActorClass(actor_or, synchronization_actor_class())):
        yield


@contextlib.contextmanager
def actors_created_by(actor_or: ActorOr) -> Iterator[None]:
    """For `WorkerGroup._create_workers`: each worker."""
    with _replaced("ray", _Ray(actor_or)):
        yield


@contextlib.contextmanager
def _replaced(name: str, replacement: Any) -> Iterator[None]:
    original = getattr(worker_group, name)
    setattr(worker_group, name, replacement)
    try:
        yield
    finally:
        setattr(worker_group, name, original)


class _Ray:
    """The module `ray`, but for the actors of the classes that it makes remote."""

    def __init__(self, actor_or: ActorOr) -> None:
        self._actor_or = actor_or

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def remote(self, **options: Any) -> Callable[[type], "_ActorClass"]:
        return lambda cls: _ActorClass(self._actor_or, ray.remote(**options)(cls))


class _ActorClass:
    """Stands in for an actor class: `.options(...).remote(...)` returns `actor_or(create)`."""

    def __init__(self, actor_or: ActorOr, actor_class: Any) -> None:
        self._actor_or = actor_or
        self._actor_class = actor_class

    def options(self, **options: Any) -> "_ActorClass":
        return _ActorClass(self._actor_or, self._actor_class.options(**options))

    def remote(self, **arguments: Any) -> Any:
        return self._actor_or(lambda: self._actor_class.remote(**arguments))
