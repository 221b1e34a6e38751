"""A stand-in for the attempt that listens to the service's answers."""

from collections.abc import Callable
from typing import Any

from trainer.client.listener import ServiceListener


def nothing(*_args: object) -> None:
    pass


def listener(**calls: Callable[..., Any]) -> ServiceListener:
    """Calls these functions, which have the names of the listener's methods; of the rest it makes nothing."""
    names = {name for name in vars(ServiceListener) if name.startswith("on_")}
    assert calls.keys() <= names
    methods = {name: staticmethod(calls.get(name, nothing)) for name in names}
    made: ServiceListener = type("Listener", (), methods)()
    return made
