"""Where a sampler knows nothing of what is forbidden, one parameter gives way."""

from collections import Counter

from pydantic import TypeAdapter

from search.samplers.constrained_draw import constrained_draw
from search.space.forbidden import Forbidden
from search.space.space import Params, Space

WANTED: Params = {"a": 0.9, "b": 0.8, "c": 0.7}
FORBIDDEN = TypeAdapter(Forbidden).validate_python([{"a": {"min": 0.5}, "b": {"min": 0.3}}])


def moved(order: str, number: int) -> set[str]:
    parameters = {name: {"type": "float", "low": 0, "high": 1} for name in order}
    space = Space.model_validate(parameters).without(FORBIDDEN)
    drawn = constrained_draw(space, 7, number, lambda _: WANTED, max_draws=2)
    assert space.forbids(drawn) is None
    return {name for name in WANTED if drawn[name] != WANTED[name]}


def test_each_parameter_of_what_is_forbidden_gives_way_in_about_half_of_the_draws() -> None:
    for order in ("abc", "cba"):
        counts = Counter(name for number in range(100) for name in moved(order, number))
        assert counts.keys() == {"a", "b"}
        assert 30 < counts["a"] < 70
        assert counts["a"] + counts["b"] == 100
