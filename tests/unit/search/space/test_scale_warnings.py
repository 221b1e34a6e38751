"""Ranges of which nearly all values would be drawn from the uppermost order of magnitude."""

from typing import Any

import pytest

from search.space.scale_warnings import scale_warnings
from search.space.space import Space


def warnings_about(**parameter: Any) -> list[str]:
    space = Space.model_validate({"lr": {"type": "float", **parameter}})
    return [f"{mistake.where}: {mistake.message}" for mistake in scale_warnings(space)]


def test_a_range_over_orders_of_magnitude_is_named_with_what_it_means() -> None:
    [warning] = warnings_about(low=1e-5, high=0.1)
    assert warning.startswith("space.lr.log: is false for 1e-05 to 0.1: nine of ten values drawn are above 0.01; true")


@pytest.mark.parametrize(
    "parameter",
    [
        {"low": 1e-5, "high": 0.1, "log": True},
        {"low": 0, "high": 1},
        {"low": 0.001, "high": 0.5},
        {"low": -1e5, "high": -1},
        {"low": 0.001, "high": 1, "step": 0.001},
        {"low": 5, "high": 5},
    ],
)
def test_other_ranges_are_not(parameter: dict[str, Any]) -> None:
    assert warnings_about(**parameter) == []


def test_numbers_of_steps_and_widths_are_often_meant_as_they_are() -> None:
    space = Space.model_validate({"steps": {"type": "int", "low": 1, "high": 100_000}})
    assert list(scale_warnings(space)) == []
