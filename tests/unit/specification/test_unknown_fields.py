"""An unknown field is answered with the one that is meant, or with those that exist at its place."""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.known_fields import known_fields
from service.specification.parser import parse_spec
from tests.conftest import a_spec

FLOAT = {"type": "float", "low": 0, "high": 1}
SPEC: dict[str, Any] = a_spec(
    space={"x": {**FLOAT, "prior": {"value": 0.1}}, "y": {"type": "categorical", "choices": ["a"]}},
    constraints=[{"metric": "size", "max": 5}],
    limits={"no_improvement": {"trials": 3}},
)


def mistakes(**fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        parse_spec(SPEC | fields)
    return {mistake.where: mistake.message for mistake in refused.value.mistakes}


@pytest.mark.parametrize(
    ("parent", "known"),
    [
        (("space", "x"), "high, log, low, prior, step, type, when"),
        (("space", "y"), "choices, prior, type, when"),
        (("space", "x", "prior"), "confidence, value"),
        (("objectives", 0), "direction, metric, target"),
        (("constraints", 0), "max, metric, min"),
        (("limits", "no_improvement"), "min_delta, trials"),
        (("trainer", "secrets", "TOKEN"), "from_agent_env, from_agent_file"),
        (("space",), ""),
        (("tags",), ""),
        (("space", "z", "prior"), ""),
    ],
)
def test_the_known_fields_are_those_of_the_object_at_the_place(parent: tuple[str | int, ...], known: str) -> None:
    assert ", ".join(known_fields(parent, SPEC)) == known


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"space": {"x": {**FLOAT, "lo": 1}}}, "space.x.lo", "unknown field; did you mean low?"),
        ({"limits": {"max_trails": 1}}, "limits.max_trails", "unknown field; did you mean max_trials?"),
        (
            {"constraints": [{"metric": "y", "max": 1, "low": 1}]},
            "constraints.0.low",
            "unknown field; known here: max, metric, min",
        ),
        ({"space": {"x": {"type": "float", "min": 0, "max": 1}}}, "space.x.min", "is called low here"),
        (
            {"objectives": [{"metric": "y", "mode": "min"}]},
            "objectives.0.mode",
            "is called direction here: minimize or maximize",
        ),
        (
            {"early_stopping": {"rule": "asha", "max_stp": 9}},
            "early_stopping.max_stp",
            "unknown option; did you mean max_step?",
        ),
        ({"early_stopping": {"rule": "asha", "max_t": 9}}, "early_stopping.max_t", "is called max_step here"),
        (
            {"early_stopping": {"rule": "hyperband", "grace_period": 9}},
            "early_stopping.grace_period",
            "is called min_step here",
        ),
        (
            {"early_stopping": {"rule": "asha", "brackets": 1}},
            "early_stopping.brackets",
            "is not an option here: {rule: hyperband} has several brackets, which follow from max_step",
        ),
    ],
)
def test_an_unknown_field_is_answered_with_the_one_that_is_meant(
    fields: dict[str, Any], path: str, message: str
) -> None:
    assert mistakes(**fields)[path] == message


def test_a_parameter_that_depends_on_itself_is_one_mistake() -> None:
    found = mistakes(space={"x": {**FLOAT, "when": {"x": 1}}})
    assert found == {"space.x.when": "a parameter cannot depend on itself: x -> x"}
