"""Equal configurations have the same key, and different ones do not."""

from typing import Any

import pytest

from search.space.configuration_key import key_of
from search.space.space import Space

SPACE = Space.model_validate(
    {
        "x": {"type": "float", "low": 0, "high": 10},
        "step": {"type": "float", "low": 0, "high": 1, "step": 0.1},
        "n": {"type": "int", "low": 0, "high": 9},
        "choice": {"type": "categorical", "choices": [1, True, "1", None]},
    }
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": 1}, {"x": 1.0}),
        ({"step": 0.1 + 0.2}, {"step": 0.3}),
        ({"choice": 1}, {"choice": 1.0}),
        ({"x": 2.0, "n": 3}, {"n": 3, "x": 2}),
        ({"gone": 1}, {"gone": 1.0}),
    ],
    ids=str,
)
def test_equal_configurations_have_the_same_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key_of(SPACE, one) == key_of(SPACE, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": 1.0}, {"x": 1.0 + 1e-15}),
        ({"choice": 1}, {"choice": True}),
        ({"choice": 1}, {"choice": "1"}),
        ({"choice": "a choice that is gone"}, {"choice": "another one"}),
        ({"gone": 1}, {"gone": True}),
        ({"x": 1.0}, {"x": 1.0, "n": 0}),
    ],
    ids=str,
)
def test_different_configurations_have_different_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key_of(SPACE, one) != key_of(SPACE, other)
