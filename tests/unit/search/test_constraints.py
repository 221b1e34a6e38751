"""Constraints measure by how much a trial violates them."""

import math

import pytest
from pydantic import ValidationError

from search.constraints import Constraint, total_violation, violations


@pytest.mark.parametrize(("value", "outside"), [(25.0, 5.0), (20.0, 0.0), (15.0, -5.0), (2.0, 3.0)])
def test_a_violation_is_the_distance_to_the_bound(value: float, outside: float) -> None:
    assert Constraint(metric="latency", max=20, min=5).violation(value) == outside


def test_with_one_bound_the_other_side_is_open() -> None:
    assert Constraint(metric="accuracy", min=0.5).violation(1e9) < 0
    assert Constraint(metric="latency", max=20).violation(-1e9) < 0


def test_a_metric_that_was_not_reported_is_an_infinite_violation() -> None:
    both = [Constraint(metric="latency", max=20), Constraint(metric="size", max=3)]
    assert violations(both, {"latency": 15.0}) == (-5, math.inf)
    assert total_violation(both, {"latency": 15.0}) == math.inf


def test_only_violated_constraints_add_up() -> None:
    both = [Constraint(metric="latency", max=20), Constraint(metric="size", max=3)]
    assert total_violation(both, {"latency": 1.0, "size": 5.0}) == 2
    assert total_violation(both, {"latency": 20.0, "size": 3.0}) == 0


@pytest.mark.parametrize("bounds", [{}, {"max": 1, "min": 2}, {"max": float("nan")}])
def test_a_constraint_without_bounds_or_without_a_feasible_value_is_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Constraint(metric="latency", **bounds)
