"""Narrowing a space while its experiment runs: which changes are allowed, and what becomes unreachable."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from search.mistakes import Mistake, listed
from search.numbers_in_messages import distinct_texts
from search.space.conditions import Condition
from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter
from search.space.scalars import identity, shown
from search.space.space import Params, Space, narrowed

_PARAMETERS: TypeAdapter[dict[str, FloatParameter | IntParameter | CategoricalParameter]] = TypeAdapter(
    dict[str, Parameter]
)
_CONDITIONS: TypeAdapter[dict[str, Condition | None]] = TypeAdapter(dict[str, Condition | None])


def mistakes_in_narrowing(before: Space, after: Space) -> list[Mistake]:
    """Where `after` is neither `before` nor a part of it; paths start at the space."""
    return list(_mistakes(before, after))


def without_dead_branches(space: Mapping[str, Any]) -> dict[str, Any]:
    """The space without parameters that can no longer exist, and without conditions on values that are gone.

    An invalid space is returned unchanged.
    """
    try:
        parameters = _PARAMETERS.validate_python(space)
    except ValidationError:
        return dict(space)
    kept = dict(space)
    while True:
        conditions = {name: _reachable(parameters[name], kept, parameters) for name in kept}
        dead = [name for name, when in conditions.items() if not all(when.values())]
        if not dead:
            return {name: _with_conditions(kept[name], when) for name, when in conditions.items()}
        kept = {name: item for name, item in kept.items() if name not in dead}


def inside(space: Space, params: Params) -> bool:
    """Whether each of the params is a value of its parameter; params may be missing."""
    return all(name in space.root and space.root[name].mistake_in(value) is None for name, value in params.items())


def _reachable(parameter: Parameter, kept: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """The parameter's conditions as JSON, each None if the parent can no longer meet it."""
    reachable = {
        parent: narrowed(wanted, parameters[parent]) if parent in kept else None
        for parent, wanted in parameter.when.items()
        if parent in parameters
    }
    dumped: dict[str, Any] = _CONDITIONS.dump_python(reachable, mode="json")
    return dumped


def _with_conditions(item: Any, when: dict[str, Any]) -> Any:
    return {**item, "when": when} if when else item


def _mistakes(before: Space, after: Space) -> Iterator[Mistake]:
    for name in after.root:
        if name not in before.root:
            yield Mistake((name,), f"cannot be added after the submission; the space has {listed(before.root)}")
    for name, old in before.root.items():
        if name in after.root:
            for mistake in _parameter_mistakes(old, after.root[name]):
                yield mistake.under(name)
        elif not _is_dead(old, after):
            yield Mistake((name,), "cannot be removed after the submission; it can be narrowed to one value")


def _is_dead(old: Parameter, after: Space) -> bool:
    return any(
        parent not in after.root or narrowed(wanted, after.root[parent]) is None for parent, wanted in old.when.items()
    )


def _parameter_mistakes(old: Parameter, new: Parameter) -> Iterator[Mistake]:
    if isinstance(old, CategoricalParameter) and isinstance(new, CategoricalParameter):
        yield from _choice_mistakes(old, new)
    elif old.type != new.type:
        yield Mistake(("type",), f"cannot be changed: it is {old.type}")
    elif not isinstance(old, CategoricalParameter) and not isinstance(new, CategoricalParameter):
        yield from _range_mistakes(old, new)
    for parent in {*old.when, *new.when}:
        if not _is_part(new.when.get(parent), old.when.get(parent)):
            yield Mistake(("when", parent), "cannot be changed")


def _is_part(new: Condition | None, old: Condition | None) -> bool:
    if isinstance(new, tuple) and isinstance(old, tuple):
        return {identity(value) for value in new} <= {identity(value) for value in old}
    return new == old


def _choice_mistakes(old: CategoricalParameter, new: CategoricalParameter) -> Iterator[Mistake]:
    for index, choice in enumerate(new.choices):
        if old.position(choice) is None:
            choices = listed(map(shown, old.choices))
            yield Mistake(
                ("choices", index), f"choices can only be removed: must be one of {choices}, not {shown(choice)}"
            )


def _range_mistakes(old: FloatParameter | IntParameter, new: FloatParameter | IntParameter) -> Iterator[Mistake]:
    if old.log != new.log:
        yield Mistake(("log",), f"cannot be changed: it is {shown(old.log)}")
    if old.step != new.step:
        yield Mistake(("step",), f"cannot be changed: it is {shown(old.step)}")
    if new.low < old.low:
        bound, given = distinct_texts(old.low, new.low)
        yield Mistake(("low",), f"bounds can only be narrowed: must be {bound} or more, not {given}")
    elif new.low <= old.high and (wrong := old.mistake_in(new.low)):
        yield Mistake(("low",), wrong)
    if new.high > old.high:
        bound, given = distinct_texts(old.high, new.high)
        yield Mistake(("high",), f"bounds can only be narrowed: must be {bound} or less, not {given}")
