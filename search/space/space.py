"""A search space: parameters by name, some of which exist only under conditions (`when`)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Self

from pydantic import ConfigDict, JsonValue, PrivateAttr, RootModel, TypeAdapter, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from search.mistakes import Mistake, listed, parse, refuse
from search.space.axes import Axis, Floats, TooEntangled, Values
from search.space.conditions import Condition, Range, in_words, meets
from search.space.configurations import Configurations
from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter, Params, Steps

__all__ = ["CategoricalParameter", "FloatParameter", "IntParameter", "Parameter", "Params", "Space"]

_PARAMETER: TypeAdapter[FloatParameter | IntParameter | CategoricalParameter] = TypeAdapter(Parameter)
MAX_WRONG_VALUES = 10
"""Of a condition that are reported."""
_TYPES = ("float", "int", "categorical")


class Space(RootModel[dict[str, Parameter]]):
    """Validated as a whole: all mistakes are reported together, each at the path of its field."""

    model_config = ConfigDict(frozen=True)

    _forbidden: tuple[Mapping[str, Condition], ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _with_all_mistakes(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            return handler(given)
        parameters, mistakes = _parsed(given)
        refuse(cls.__name__, [*mistakes, *_mistakes_in_conditions(parameters, given)], given)
        return handler(parameters)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names, parents before children, otherwise in the order of the spec."""
        return _parents_first(self.root)

    def without(self, forbidden: Sequence[Mapping[str, Condition]]) -> "Space":
        """The space without the configurations that meet all conditions of one of the entries of `forbid`."""
        smaller = Space.model_construct(self.root)
        smaller._forbidden = tuple(forbidden)  # noqa: SLF001
        return smaller

    @property
    def forbidden(self) -> tuple[Mapping[str, Condition], ...]:
        return self._forbidden

    def forbids(self, params: Mapping[str, JsonValue]) -> int | None:
        """The index of the first entry of `forbid` that `params` meet; None if they meet none."""
        for index, entry in enumerate(self._forbidden):
            if self._meet_all(params, entry):
                return index
        return None

    @property
    def conditional(self) -> list[str]:
        """The names of the parameters that exist only under conditions."""
        return [name for name, parameter in self.root.items() if parameter.when]

    @property
    def prior_values(self) -> Params:
        """The values that the parameters' priors expect."""
        return {name: one.prior.value for name, one in self.root.items() if one.prior is not None}

    def exists(self, name: str, params: Mapping[str, JsonValue]) -> bool:
        """Whether the parameter exists, given the values of its parents in `params`."""
        return self._meet_all(params, self.root[name].when)

    def _meet_all(self, params: Mapping[str, JsonValue], conditions: Mapping[str, Condition]) -> bool:
        return all(
            name in params and self._meets(name, condition, params[name]) for name, condition in conditions.items()
        )

    def _meets(self, name: str, condition: Condition, value: JsonValue) -> bool:
        """A float that differs from a step only by rounding counts as the step, as everywhere in the search."""
        parameter = self.root.get(name)
        steps = parameter.values() if isinstance(parameter, FloatParameter) else None
        if not isinstance(steps, Steps):
            return meets(condition, value)
        wanted = steps.with_bounds_on_steps(condition) if isinstance(condition, Range) else condition
        return meets(wanted, steps.without_rounding(value) if isinstance(value, float) else value)

    def draw(self, choose: Callable[[str, Parameter], JsonValue]) -> Params:
        """A configuration. `choose` returns the value of a parameter; it is called for each one that exists."""
        drawn: Params = {}
        for name in self.order:
            if self.exists(name, drawn):
                drawn[name] = choose(name, self.root[name])
        return {name: drawn[name] for name in self.root if name in drawn}

    def active(self, params: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """The parameters that exist under `params`. Values of parameters that do not exist are ignored."""
        present: Params = {}
        for name in self.order:
            if name in params and self.exists(name, present):
                present[name] = params[name]
        return tuple(name for name in self.root if self.exists(name, present))

    def mistakes_in(self, params: Mapping[str, Any]) -> list[Mistake]:
        """Why `params` are not a configuration of this space; empty if they are one."""
        mistakes = [Mistake((name,), self.unknown_parameter) for name in params if name not in self.root]
        mistakes += self._mistakes_in_known(params)
        if not mistakes and (entry := self.forbids(params)) is not None:
            return [Mistake((), f"is forbidden: {in_words(self._forbidden[entry])}")]
        return mistakes

    @cached_property
    def unknown_parameter(self) -> str:
        """What is wrong with a name that no parameter has."""
        return f"unknown parameter; the space has {listed(self.root)}"

    def _mistakes_in_known(self, params: Mapping[str, Any]) -> Iterator[Mistake]:
        decided: Params = {}
        undecided: set[str] = set()  # it is not known whether they exist, because a parent has a mistake
        for name in self.order:
            parameter = self.root[name]
            if not undecided.isdisjoint(parameter.when):
                undecided.add(name)
            elif not self.exists(name, decided):
                if name in params:
                    yield Mistake((name,), f"exists only when {in_words(parameter.when)}; leave it out")
            elif wrong := parameter.mistake_in(params[name]) if name in params else "is missing":
                undecided.add(name)
                yield Mistake((name,), wrong)
            else:
                decided[name] = params[name]

    def size(self) -> int | None:
        """The number of configurations; None if it is infinite or cannot be computed."""
        if any(parameter.values() is None for parameter in self.root.values()):
            return None
        try:
            return self.configurations.size
        except TooEntangled:
            return None

    @cached_property
    def has_finite_part(self) -> bool:
        """Whether configurations without a continuous parameter may exist, and can be computed."""
        is_continuous = any(parameter.values() is None and not parameter.when for parameter in self.root.values())
        return not is_continuous and self.has_known_configurations

    @cached_property
    def has_known_configurations(self) -> bool:
        """Whether there are configurations, and they can be computed."""
        try:
            return self.configurations.size > 0
        except TooEntangled:
            return False

    @cached_property
    def configurations(self) -> Configurations:
        """All possible configurations. Raises TooEntangled."""
        return self.configurations_on({name: axis_of(parameter) for name, parameter in self.root.items()})

    def configurations_on(self, axes: Mapping[str, Axis]) -> Configurations:
        """The possible configurations that have only values on the axes. Raises TooEntangled."""
        return Configurations(self.root, self.order, self._forbidden, axes)


def axis_of(parameter: Parameter) -> Axis:
    values = parameter.values()
    if values is not None:
        return Values(values)
    assert isinstance(parameter, FloatParameter)  # noqa: S101 (the only kind with infinitely many values)
    return Floats(parameter.low, parameter.high)


def narrowed(condition: Condition, parent: Parameter) -> Condition | None:
    """The condition without the values that the parent does not have; None if no value is left."""
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
    # From the given document, so that the conditions of a parameter with another mistake are checked, too.
    parents = {name: _conditions(item) for name, item in given.items()}
    for name, conditions in parents.items():
        if loop := _loop(parents, name):
            yield Mistake((name, "when"), f"a parameter cannot depend on itself: {' -> '.join(loop)}")
        for parent in conditions:
            if parent not in given:
                yield Mistake((name, "when", parent), f"unknown parameter; the space has {listed(given)}")
            elif parent != name and name in parameters and parent in parameters:
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
        yield from islice(filter(None, (parent.mistake_in(value) for value in wanted)), MAX_WRONG_VALUES)


def _loop(parents: Mapping[str, Collection[str]], start: str) -> list[str]:
    """The shortest path from a parameter through its parents back to itself; empty if there is none."""
    found = {start: ""}  # each with the child that it was found from
    queue = [start]
    for name in queue:
        for parent in parents.get(name, ()):
            if parent == start:
                return [*_path_to(found, name), start]
            if parent not in found:
                found[parent] = name
                queue.append(parent)
    return []


def _path_to(found: Mapping[str, str], name: str) -> list[str]:
    path = [name]
    while child := found[path[-1]]:
        path.append(child)
    return path[::-1]


def _parents_first(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    order: dict[str, None] = {}
    for name in parameters:
        path = [name]
        while path:
            parent = next((one for one in parameters[path[-1]].when if one not in order), None)
            if parent is None:
                order.setdefault(path.pop())
            else:
                path.append(parent)
    return tuple(order)
