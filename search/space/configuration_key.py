"""Keys by which equal configurations are found."""

from collections.abc import Mapping

from pydantic import JsonValue

from search.space.parameters import CategoricalParameter, FloatParameter, Parameter, on_step
from search.space.scalars import identity
from search.space.space import Space

Key = frozenset[tuple[str, object]]


def key_of(space: Space, params: Mapping[str, JsonValue]) -> Key:
    """Equal configurations, whose floats with steps may differ by rounding, have one key.

    Also for those of a space before it was narrowed.
    """
    return frozenset((name, _place(space.root.get(name), value)) for name, value in params.items())


def _place(parameter: Parameter | None, value: JsonValue) -> object:
    if isinstance(parameter, FloatParameter):
        return on_step(parameter, float(str(value)))
    index = parameter.position(value) if isinstance(parameter, CategoricalParameter) else None
    return identity(value) if index is None else index
