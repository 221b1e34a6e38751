"""Search spaces and histories for Hypothesis."""

from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import TypeAdapter

from search.problem import Observation, SpaceExhausted, Status
from search.space.forbidden import Forbidden
from search.space.parameters import CategoricalParameter, FloatParameter
from search.space.space import Parameter, Params, Space

SCALARS = st.one_of(
    st.text("xy", max_size=2), st.integers(-3, 3), st.booleans(), st.none(), st.sampled_from([0.5, -1.5])
)
STATUSES: tuple[Status, ...] = ("running", "completed", "pruned", "failed", "diverged", "stopped")


def outcome(function: Any, *arguments: Any) -> Params | str:
    """A proposal, or why there is none."""
    try:
        params: Params = function(*arguments)
    except SpaceExhausted as exhausted:
        return str(exhausted)
    return params


@st.composite
def parameters(draw: st.DrawFn, *, finite: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(["float", "int", "categorical"]))
    if kind == "categorical":
        choices = draw(st.lists(SCALARS, min_size=1, max_size=3, unique_by=lambda one: (isinstance(one, bool), one)))
        return {"type": kind, "choices": choices}
    log = draw(st.booleans())
    if kind == "int":
        least = draw(st.integers(1 if log else -5, 5))
        stride = {} if log else {"step": draw(st.integers(1, 3))}
        return {"type": kind, "low": least, "high": least + draw(st.integers(0, 4)), "log": log, **stride}
    if finite:
        low, step = draw(st.integers(-20, 20)) / 10, draw(st.sampled_from([0.1, 0.25, 0.3, 1]))
        return {"type": kind, "low": low, "high": low + draw(st.integers(0, 7)) / 2 * step, "step": step}
    low = draw(st.floats(1e-6, 1e3)) if log else draw(st.floats(-1e6, 1e6))
    return {
        "type": kind,
        "low": low,
        "high": low + draw(st.sampled_from([0.0, 1e-9]) | st.floats(1e-3, 1e6)),
        "log": log,
    }


@st.composite
def spaces(draw: st.DrawFn, *, finite: bool | None = None) -> Space:
    """Up to five parameters, each with conditions on earlier ones, in any order."""
    written: dict[str, dict[str, Any]] = {}
    for name in "abcde"[: draw(st.integers(1, 5))]:
        item = draw(parameters(finite=draw(st.booleans()) if finite is None else finite))
        parents = {other: Space({other: _bare(written[other])}).root[other] for other in written}
        chosen = draw(st.lists(st.sampled_from(sorted(parents)), max_size=2, unique=True)) if parents else []
        item["when"] = {other: draw(conditions(parents[other])) for other in chosen}
        written[name] = item
    return Space.model_validate({name: written[name] for name in draw(st.permutations(list(written)))})


@st.composite
def configurations(draw: st.DrawFn, space: Space) -> Params:
    drawn = space.draw(lambda _, parameter: draw(_value(parameter)))
    return drawn if space.forbids(drawn) is None else space.configurations.nearby(drawn, lambda: 0.5)


@st.composite
def histories(draw: st.DrawFn, space: Space, *, max_size: int = 25, numbers: int = 40) -> list[Observation]:
    """Trials in any order and of any status, with gaps between their numbers."""
    known = draw(st.lists(st.integers(0, numbers), max_size=max_size, unique=True))
    return [draw(observations(space, number)) for number in known]


@st.composite
def observations(draw: st.DrawFn, space: Space, number: int) -> Observation:
    status = draw(st.sampled_from(STATUSES))
    value = draw(st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0, float("inf"), float("-inf")]))
    reported = draw(st.booleans())
    return Observation(
        number=number,
        params=draw(configurations(space)),
        status=status,
        values=(value,) if status == "completed" else None,
        last_step=draw(st.integers(0, 30)) if reported else None,
        last_value=value if reported else None,
    )


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "when"}


@st.composite
def conditions(draw: st.DrawFn, parameter: Parameter) -> Any:
    """A condition that some value of the parameter meets."""
    values = parameter.values()
    if values is not None and (isinstance(parameter, CategoricalParameter) or draw(st.booleans())):
        one = st.sampled_from(list(values))
        return draw(one | st.lists(one, min_size=1, max_size=2))
    met, other = draw(_value(parameter)), draw(_value(parameter))
    kind = draw(st.sampled_from(["min", "max", "both"]))
    return {"min": min(met, other), "max": max(met, other)} if kind == "both" else {kind: met}


@st.composite
def forbidden(draw: st.DrawFn, space: Space) -> Space:
    """The space without some combinations, or unchanged if no configuration would be left."""
    entries = []
    for _ in range(draw(st.integers(0, 3))):
        names = draw(st.lists(st.sampled_from(sorted(space.root)), min_size=1, max_size=3, unique=True))
        entries.append({name: draw(conditions(space.root[name])) for name in names})
    smaller = space.without(TypeAdapter(Forbidden).validate_python(entries))
    return smaller if smaller.configurations.size else space


def _value(parameter: Parameter) -> st.SearchStrategy[Any]:
    values = parameter.values()
    if values is None:
        assert isinstance(parameter, FloatParameter)
        return st.floats(parameter.low, parameter.high)
    return st.sampled_from(list(values))


class Strategies:
    spaces = staticmethod(spaces)
    forbidden = staticmethod(forbidden)
    configurations = staticmethod(configurations)
    histories = staticmethod(histories)
    observations = staticmethod(observations)


@pytest.fixture(scope="session")
def draws() -> type[Strategies]:
    return Strategies
