"""A search space: parameters by name, some of which exist only under conditions (`when`)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import ConfigDict, JsonValue, PrivateAttr, RootModel, TypeAdapter, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from search.mistakes import Mistake, listed, parse, refuse
from search.space.axes import Axis, Floats, Values
from search.space.conditions import Condition, Range, meets, told
from search.space.configurations import Configurations, TooEntangled
from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter

__all__ = ["CategoricalParameter", "FloatParameter", "IntParameter", "Parameter", "Params", "Space"]

Params = dict[str, JsonValue]

_PARAMETER: TypeAdapter[FloatParameter | IntParameter | CategoricalParameter] = TypeAdapter(Parameter)
_TYPES = ("float", "int", "categorical")


class Space(RootModel[dict[str, Parameter]]):
    """Validated as a whole: every mistake at once, each at the path of its field."""

    model_config = ConfigDict(frozen=True)

    _forbidden: tuple[Mapping[str, Condition], ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _with_every_mistake(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            return handler(given)
        parameters, mistakes = _parsed(given)
        refuse(cls.__name__, [*mistakes, *_mistakes_in_conditions(parameters, given)], given)
        return handler(parameters)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names, parents before children, otherwise as they were written."""
        return _parents_first(self.root)

    def without(self, forbidden: Sequence[Mapping[str, Condition]]) -> "Space":
        """The space without the configurations that meet all conditions of one of the entries."""
        smaller = Space.model_construct(self.root)
        smaller._forbidden = tuple(forbidden)  # noqa: SLF001
        return smaller

    @property
    def forbidden(self) -> tuple[Mapping[str, Condition], ...]:
        return self._forbidden

    def forbids(self, params: Mapping[str, JsonValue]) -> int | None:
        """The entry of what is forbidden that `params` meet; None if they meet none."""
        for index, entry in enumerate(self._forbidden):
            if all(name in params and meets(condition, params[name]) for name, condition in entry.items()):
                return index
        return None

    def exists(self, name: str, params: Mapping[str, JsonValue]) -> bool:
        """Whether the parameter exists beside `params`, in which its parents have been decided."""
        return all(
            parent in params and meets(wanted, params[parent]) for parent, wanted in self.root[name].when.items()
        )

    def draw(self, choose: Callable[[str, Parameter], JsonValue]) -> Params:
        """A configuration: `choose` is asked for each parameter that exists, parents before children."""
        drawn: Params = {}
        for name in self.order:
            if self.exists(name, drawn):
                drawn[name] = choose(name, self.root[name])
        return {name: drawn[name] for name in self.root if name in drawn}

    def active(self, params: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """The parameters that exist under `params`; what is there without existing counts for nothing."""
        present: Params = {}
        for name in self.order:
            if name in params and self.exists(name, present):
                present[name] = params[name]
        return tuple(name for name in self.root if self.exists(name, present))

    def mistakes_in(self, params: Mapping[str, Any]) -> list[Mistake]:
        """What keeps `params` from being a configuration of this space; empty if it is one."""
        unknown = [
            Mistake((name,), f"unknown parameter; the space has {listed(self.root)}")
            for name in params
            if name not in self.root
        ]
        mistakes = unknown + list(self._mistakes_in_known(params))
        if not mistakes and (entry := self.forbids(params)) is not None:
            return [Mistake((), f"is forbidden: {told(self._forbidden[entry])}")]
        return mistakes

    def _mistakes_in_known(self, params: Mapping[str, Any]) -> Iterator[Mistake]:
        decided: Params = {}
        unsure: set[str] = set()  # where nothing can be said until a parent is put right
        for name in self.order:
            parameter = self.root[name]
            if not unsure.isdisjoint(parameter.when):
                unsure.add(name)
            elif not self.exists(name, decided):
                if name in params:
                    yield Mistake((name,), f"exists only when {told(parameter.when)}; leave it out")
            elif wrong := parameter.mistake_in(params[name]) if name in params else "is missing":
                unsure.add(name)
                yield Mistake((name,), wrong)
            else:
                decided[name] = params[name]

    def size(self) -> int | None:
        """How many configurations there are; None if they cannot be counted."""
        if any(parameter.values() is None for parameter in self.root.values()):
            return None
        try:
            return self.configurations.size
        except TooEntangled:
            return None

    @cached_property
    def configurations(self) -> Configurations:
        """What is possible. Raises TooEntangled."""
        return Configurations(self, {name: axis_of(parameter) for name, parameter in self.root.items()})


def axis_of(parameter: Parameter) -> Axis:
    values = parameter.values()
    if values is not None:
        return Values(values)
    assert isinstance(parameter, FloatParameter)  # noqa: S101 (the only kind without end)
    return Floats(parameter.low, parameter.high)


def narrowed(condition: Condition, parent: Parameter) -> Condition | None:
    """What is left of a condition on the parameter; None if no value can meet it."""
    if isinstance(condition, Range):
        return condition if axis_of(parent).where(condition) else None
    return tuple(value for value in condition if parent.mistake_in(value) is None) or None


def _parsed(given: Mapping[str, Any]) -> tuple[dict[str, Parameter], list[Mistake]]:
    parameters: dict[str, Parameter] = {}
    mistakes: list[Mistake] = [] if given else [Mistake((), "must have at least one parameter")]
    for name, item in given.items():
        if not name.strip():
            mistakes.append(Mistake((name,), "a parameter needs a name"))
        parameter, wrong = parse(_PARAMETER, item, tags=_TYPES)
        mistakes += [mistake.under(name) for mistake in wrong]
        if parameter is not None:
            parameters[name] = parameter
    return parameters, mistakes


def _mistakes_in_conditions(parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> Iterator[Mistake]:
    # Taken as they were written, so that a parameter with another mistake still has its conditions checked.
    parents = {name: _conditions(item) for name, item in given.items()}
    for name, conditions in parents.items():
        if loop := _loop(parents, name):
            yield Mistake((name, "when"), f"a parameter cannot depend on itself: {' -> '.join(loop)}")
        for parent in conditions:
            if parent not in given:
                yield Mistake((name, "when", parent), f"unknown parameter; the space has {listed(given)}")
            elif name in parameters and parent in parameters:
                for message in mistakes_in_condition(parameters[parent], parent, parameters[name].when[parent]):
                    yield Mistake((name, "when", parent), message)


def _conditions(item: Any) -> Mapping[str, Any]:
    conditions = item.get("when") if isinstance(item, Mapping) else getattr(item, "when", None)
    return conditions if isinstance(conditions, Mapping) else {}


def mistakes_in_condition(parent: Parameter, name: str, wanted: Condition) -> Iterator[str]:
    if isinstance(wanted, Range):
        if not axis_of(parent).where(wanted):
            yield f"no value of {name} is {wanted}"
    elif parent.values() is None:
        yield f"{name} is continuous; its conditions need a range: {{min, max}}"
    else:
        yield from filter(None, (parent.mistake_in(value) for value in wanted))


def _loop(parents: Mapping[str, Collection[str]], start: str) -> list[str]:
    """The shortest way from a parameter through its parents back to itself, or nothing."""
    found = {start: ""}  # and from which of its children
    ahead = [start]
    for name in ahead:
        for parent in parents.get(name, ()):
            if parent == start:
                return [*_way_back(found, name), start]
            if parent not in found:
                found[parent] = name
                ahead.append(parent)
    return []


def _way_back(found: Mapping[str, str], name: str) -> list[str]:
    way = [name]
    while child := found[way[-1]]:
        way.append(child)
    return way[::-1]


def _parents_first(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    order: dict[str, None] = {}
    for name in parameters:
        way = [name]
        while way:
            parent = next((one for one in parameters[way[-1]].when if one not in order), None)
            if parent is None:
                order.setdefault(way.pop())
            else:
                way.append(parent)
    return tuple(order)
