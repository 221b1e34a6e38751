"""The fields that exist at the place of an unknown one."""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel

from search.mistakes import UNKNOWN, Mistake, Path, instead_of
from service.specification.cross_field_checks import dataset_checks
from service.specification.hints.path_patterns import item_at
from service.specification.models import ExperimentSpec


def with_known_fields(mistake: Mistake, known: Sequence[str]) -> Mistake:
    """For an unknown field, the mistake with the closest of the fields that exist at its place, or else all of them.

    Any other mistake unchanged.
    """
    if not known or mistake.message != UNKNOWN:
        return mistake
    if len(mistake.path) == 1 and (places := places_of(str(mistake.path[0]))):
        return Mistake(mistake.path, f"{UNKNOWN}; did you mean {' or '.join(places)}?")
    return Mistake(mistake.path, f"{UNKNOWN}; {instead_of(str(mistake.path[-1]), known, 'known here')}")


def places_of(name: str) -> list[str]:
    """The fields of this name in the parts of a specification, such as `limits.max_trials`."""
    return [f"{part}.{name}" for part in ExperimentSpec.model_fields if name in known_fields((part,), {})]


def known_fields(parent: Path, document: Any) -> list[str]:
    """The fields of the object that the path leads to in a specification; empty for an object without fixed fields."""
    kind: Any = ExperimentSpec
    value = document
    for part in parent:
        kind, value = _inside(kind, part), item_at(value, part)
        kind = _member(kind, value)
    return sorted(kind.model_fields) if _is_model(kind) else dataset_checks.known_fields(parent)


def _inside(kind: Any, part: str | int) -> Any:
    """The type of a field of a model, or of the entries of a list or an object."""
    if _is_model(kind):
        field = kind.model_fields.get(part)
        return field.annotation if field else None
    entries = get_args(kind)
    return entries[-1] if get_origin(kind) in (list, dict) else None


def _member(kind: Any, value: Any) -> Any:
    """The model, list or dict in an annotation; of several models the one that `type` names in the value."""
    members = [one for one in _members(kind) if one is not type(None)]
    if len(members) == 1:
        return members[0]
    named = value.get("type") if isinstance(value, Mapping) else None
    return next((one for one in members if _is_model(one) and named in _types(one)), None)


def _members(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _members(one)
    elif _is_model(kind) and issubclass(kind, RootModel):
        yield from _members(kind.model_fields["root"].annotation)
    else:
        yield kind


def _types(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
