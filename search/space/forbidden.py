"""Forbidden combinations: `forbid: [{optimizer: sgd, lr: {min: 0.5}}]`."""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from search.mistakes import Mistake
from search.space.axes import TooEntangled, joined
from search.space.conditions import Condition
from search.space.scalars import shown
from search.space.space import Space, mistakes_in_condition, narrowed

Forbidden = list[dict[str, Condition]]
"""Each entry forbids the configurations in which all of its parameters exist and meet their conditions."""

_FORBIDDEN: TypeAdapter[list[Any]] = TypeAdapter(Forbidden)


def mistakes_in_forbidden(space: Space) -> Iterator[Mistake]:
    """What is wrong with the space's forbidden combinations; paths start at the list of entries."""
    wrong = list(_mistakes_in_entries(space))
    yield from wrong
    if space.forbidden and not wrong:
        try:
            if not space.configurations.size:
                yield Mistake((), "every configuration is forbidden")
        except TooEntangled as reason:
            yield Mistake((), str(reason))


def _mistakes_in_entries(space: Space) -> Iterator[Mistake]:
    for index, entry in enumerate(space.forbidden):
        if not entry:
            yield Mistake((index,), "must name at least one parameter")
        for name, condition in entry.items():
            if name not in space.root:
                yield Mistake((index, name), space.unknown_parameter)
            else:
                for message in mistakes_in_condition(space.root[name], name, condition):
                    yield Mistake((index, name), message)


def still_possible(entries: Any, space: Space) -> Any:
    """Entries as JSON, without the parameters and values that the space no longer has; invalid ones are unchanged."""
    try:
        forbidden = _FORBIDDEN.validate_python(entries)
    except ValidationError:
        return entries
    kept = [
        {name: narrowed(condition, space.root[name]) for name, condition in entry.items() if name in space.root}
        for entry in forbidden
        if all(name in space.root for name in entry)
    ]
    return _FORBIDDEN.dump_python([entry for entry in kept if all(entry.values())], mode="json")


def dead_branches(space: Space) -> Iterator[Mistake]:
    """Parameters and values that no configuration has, and entries of `forbid` without effect.

    Paths start at the experiment's spec. Raises TooEntangled.
    """
    configurations = space.configurations
    for name, alive in configurations.possible().items():
        if not alive:
            yield Mistake(("space", name), "can never exist")
            continue
        axis, parts = configurations.axes[name], configurations.parts[name]
        dead = [segment for index, part in enumerate(parts) if index not in alive for segment in part.segments]
        for segment in joined(dead):
            first, last = shown(axis.value(segment[0])), shown(axis.value(segment[1]))
            yield Mistake(("space", name), f"is never {first}" if first == last else f"is never from {first} to {last}")
    for index in configurations.useless():
        yield Mistake(("forbid", index), "forbids no possible configuration")
