"""Samplers and rules of other packages, which name them in an entry point."""

import logging
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from pydantic import ValidationInfo

T = TypeVar("T")

SAMPLER_GROUP = "paceline.samplers"
RULE_GROUP = "paceline.early_stopping"


@dataclass(frozen=True)
class Accepted:
    """The validation context for a spec that the service has accepted before, but for the fields that have `changed`.

    Plugins and libraries that the other fields name may be gone.
    """

    changed: frozenset[str] = frozenset()


STORED = Accepted()
"""Nothing has changed: the parts are not even checked against each other, because an older version of the service may
have had fewer rules."""


def is_accepted(field: str, validation: ValidationInfo) -> bool:
    """Whether the service has accepted this field of the spec that is validated."""
    return isinstance(validation.context, Accepted) and field not in validation.context.changed


_NAME = re.compile(r"[a-z][a-z0-9_]*")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """`kinds` has the classes by name; `broken`, by name, why others cannot be used, as a part of a sentence."""

    kinds: dict[str, type[T]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def plugins(
    group: str,
    base: type[T],
    own: Collection[str],
    flaw: Callable[[str, type[T]], str | None] = lambda *_: None,
    *,
    advised: type[T] | None = None,
) -> Plugins[T]:
    """The classes that installed packages name in this group of entry points.

    A plugin that cannot be used is logged and left out, so that it does not keep the service from starting. `own` are
    the names that are taken; `flaw` says why a class does not keep the contract, or None. Any subclass of `base` is
    accepted; `advised` is the one to subclass, if that is another class.
    """
    found: Plugins[T] = Plugins()
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        try:
            _check_name(point, {*own, *found.kinds})
            found.kinds[point.name] = _loaded(point, base, flaw, advised or base)
        except (Exception, SystemExit) as error:
            package = point.dist.name if point.dist else "an unknown package"
            why = f"{point.value} of {package} cannot be used: {_in_words(error)}"
            log.warning("%s %r: %s", group, point.name, why, exc_info=not isinstance(error, UnusablePlugin))
            found.broken.setdefault(point.name, why)
    return found


class UnusablePlugin(Exception):
    """A plugin does not keep the contract; the message says how."""


class PluginExited(Exception):
    """A plugin raised `SystemExit`, which ends a thread or a process without a word unless it is contained."""


class PluginFailed(Exception):
    """What a plugin raised, as a part of a sentence. The cause is the exception."""


@contextmanager
def plugin_failures(name: str, *others: type[Exception], is_plugin: bool) -> Iterator[None]:
    """Raise PluginFailed instead of what a plugin raises. `others` are not its own, and are raised as they are.

    Without effect on a class of the service's own, which is not `is_plugin`.
    """
    try:
        yield
    except others:
        raise
    except (Exception, SystemExit) as error:
        if not is_plugin:
            raise
        raise PluginFailed(why_failed(name, error)) from error


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Raise PluginExited instead of SystemExit."""
    try:
        yield
    except SystemExit as error:
        raise PluginExited(f"it exits with {error.code}") from error


def why_failed(name: str, error: BaseException) -> str:
    """What a plugin raised, as a part of a sentence."""
    return storable(f"{name} fails with {type(error).__name__}: {_text_of(error)}")


def _text_of(error: BaseException) -> str:
    """Its class is the plugin's, too, and may fail."""
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 - of another package
        return f"(its text fails with {type(failed).__name__})"


def storable(text: str) -> str:
    """The text without lone surrogates and NULs, which UTF-8 or a database cannot hold."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def _check_name(point: EntryPoint, taken: Collection[str]) -> None:
    if not _NAME.fullmatch(point.name):
        raise UnusablePlugin(f"the name {point.name!r} must be lower-case letters, digits and underscores")
    if point.name in taken:
        raise UnusablePlugin(f"the name {point.name!r} is taken")


def _loaded(point: EntryPoint, base: type[T], flaw: Callable[[str, type[T]], str | None], advised: type[T]) -> type[T]:
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise UnusablePlugin(f"it must be a subclass of {advised.__module__}.{advised.__qualname__}")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise UnusablePlugin(f"it must implement {', '.join(missing)}")
    if message := flaw(point.name, kind):
        raise UnusablePlugin(message)
    return kind


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, UnusablePlugin) else f"{type(error).__name__}: {error}"
