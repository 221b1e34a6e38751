"""A mistake says what to write in place of the value that was given."""

from typing import Any

import pytest

from search.space.scalars import NO_SCALAR
from service.errors import Invalid
from service.specification.parser import parse_spec
from tests.conftest import a_spec

NAMED_CHOICES = "give each choice a name, such as small, and look its value up in the training function"


def mistakes(**fields: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        parse_spec(a_spec(**fields))
    return [str(mistake) for mistake in refused.value.mistakes]


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ({"tags": {"year": 2026}}, 'tags.year: must be text: write "2026"'),
        ({"tags": {"final": True}}, 'tags.final: must be text: write "true"'),
        ({"tags": {"list": []}}, "tags.list: must be text"),
        ({"space": {"x": [0, 1]}}, "space.x: must be an object, as in {type: float, low: 0.001, high: 0.1}"),
        ({"constraints": ["m <= 5"]}, "constraints.0: must be an object, as in {metric: size, max: 5}"),
        (
            {"objectives": {"metric": "y", "direction": "minimize"}},
            "objectives: must be a list, as in [{metric: loss, direction: minimize}]",
        ),
        (
            {"trainer": {"kind": "command", "command": "python train.py"}},
            "trainer.command: must be a list, as in [python, train.py]",
        ),
        (
            {"space": {"x": {"type": "categorical", "choices": [[64, 64]]}}},
            f"space.x.choices.0: {NO_SCALAR}: {NAMED_CHOICES}",
        ),
        ({"limits": {"max_seconds": "1h"}}, "limits.max_seconds: must be a number of seconds, such as 3600"),
        ({"limits": {"max_trials": "many"}}, "limits.max_trials: must be a number, not text"),
    ],
)
def test_a_wrong_value_is_answered_with_what_to_write(fields: dict[str, Any], mistake: str) -> None:
    assert mistakes(**fields) == [mistake]


def test_a_prior_that_is_a_number_is_answered_with_an_example() -> None:
    space = {"x": {"type": "float", "low": 0, "high": 1, "prior": 0.5}}
    assert mistakes(space=space) == ["space.x.prior: must be an object, as in {value: 0.01, confidence: high}"]
