"""Which parameters exist at a point of a model's space, in which every parameter has a value."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search.samplers.optuna.gp.absent_values import absent_value
from search.samplers.optuna.gp.model_space import Number, place_of, step_of
from search.space.axes import Axis, joined
from search.space.conditions import Condition
from search.space.space import Space, axis_of

ROUNDING = 1e-9
"""How far a coordinate may be beyond the limit of a condition."""

Places = Sequence[tuple[float, float]]
"""Intervals of one coordinate of a point."""


@dataclass(frozen=True)
class Existence:
    """One parameter's coordinate, the value there if it does not exist, and where its parents have to be."""

    index: int
    absent: float
    parents: Sequence[tuple[int, Places]]


def with_absent_values(x: torch.Tensor, existences: Sequence[Existence]) -> torch.Tensor:
    """`x` has the shape (..., parameters). `existences`: parents before their children."""
    given = x.unbind(dim=-1)
    found, exists = list(given), dict[int, torch.Tensor]()
    for one in existences:
        here = torch.ones(given[0].shape, dtype=torch.bool)
        for parent, places in one.parents:
            here = here & exists.get(parent, here) & _is_at(given[parent], places)
        exists[one.index] = here
        found[one.index] = torch.where(here, given[one.index], one.absent)
    return torch.stack(found, dim=-1)


def existences_of(space: Space, distributions: Mapping[str, BaseDistribution]) -> list[Existence]:
    """Returns one for each conditional parameter; `distributions` are those of the model's space, in its order."""
    indexes = {name: index for index, name in enumerate(distributions)}
    return [
        Existence(
            indexes[name],
            _absent_place(distributions[name]),
            [
                (indexes[parent], list(_places(distributions[parent], axis_of(space.root[parent]), condition)))
                for parent, condition in _conditions(space, name, indexes)
            ],
        )
        for name in space.order
        if name in indexes and space.root[name].when
    ]


def _conditions(space: Space, name: str, known: Container[str]) -> Iterator[tuple[str, Condition]]:
    """Instead of those on a parent that has one value, which is not in the model's space, those of the parent."""
    for parent, condition in space.root[name].when.items():
        if parent in known:
            yield parent, condition
        else:
            yield from _conditions(space, parent, known)


def _absent_place(distribution: BaseDistribution) -> float:
    value = absent_value(distribution)
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_internal_repr(value)
    return place_of(_number(distribution), value)


def _places(distribution: BaseDistribution, axis: Axis, condition: Condition) -> Iterator[tuple[float, float]]:
    for first, last in joined(axis.where(condition)):
        if isinstance(distribution, CategoricalDistribution):
            yield first - 0.5, last + 0.5
        else:
            number = _number(distribution)
            low, high = (float(str(axis.value(position))) for position in (first, last))
            half = step_of(number) / 2
            yield place_of(number, low - half) - ROUNDING, place_of(number, high + half) + ROUNDING


def _number(distribution: BaseDistribution) -> Number:
    assert isinstance(distribution, FloatDistribution | IntDistribution)  # noqa: S101 - Optuna has no other kinds
    return distribution


def _is_at(x: torch.Tensor, places: Places) -> torch.Tensor:
    found = torch.zeros(x.shape, dtype=torch.bool)
    for low, high in places:
        found |= (low <= x) & (x <= high)
    return found
