"""The metric that trials are compared by."""

from typing import Any

import pytest

from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from search.reported_numbers import finite_number
from tests.unit.search.early_stopping.trials import Spec

ACCURACY, LATENCY = ComparedMetric("accuracy", "maximize"), ComparedMetric("latency", "minimize")


@pytest.mark.parametrize(
    ("options", "objectives", "expected"),
    [
        ({}, [ACCURACY], ACCURACY),
        ({"metric": "latency"}, [ACCURACY, LATENCY], LATENCY),
        ({"metric": "val_loss", "direction": "minimize"}, [ACCURACY, LATENCY], ComparedMetric("val_loss", "minimize")),
        ({}, [ACCURACY, LATENCY], ["metric"]),
        ({"direction": "maximize"}, [ACCURACY], ["direction"]),
        ({"metric": "val_loss"}, [ACCURACY], ["direction"]),
        ({"metric": "accuracy", "direction": "minimize"}, [ACCURACY], ["direction"]),
    ],
)
def test_trials_are_compared_by_the_only_objective_or_by_a_named_metric(
    options: dict[str, Any], objectives: list[ComparedMetric], expected: ComparedMetric | list[str]
) -> None:
    rule = Spec.model_validate({"early_stopping": {"rule": "asha", **options}}).early_stopping
    mistakes = [str(mistake.path[0]) for mistake in mistakes_in_metric(rule, objectives)]
    if mistakes:
        assert mistakes == expected
    else:
        assert compared_metric_of(rule, objectives) == expected


def test_without_a_rule_several_objectives_need_no_metric() -> None:
    rule = Spec.model_validate({"early_stopping": {}}).early_stopping
    assert list(mistakes_in_metric(rule, [ACCURACY, LATENCY])) == []


@pytest.mark.parametrize(("reported", "number"), [
    ("0.5", 0.5), (" -1e3\n", -1000.0), (".5", 0.5), ("5.", 5.0), ("9" * 25, 1e25), (True, 1.0), (10**400, None),
    ("1_000", None), ("\u0661", None), ("0x1", None), ("", None), ("nan", None), ("inf", None), ("1 2", None),
    ([1], None),
])  # fmt: skip
def test_a_text_counts_if_it_is_a_decimal_number(reported: Any, number: float | None) -> None:
    assert finite_number(reported) == number
