"""A rule in an experiment's spec, and the messages about mistakes in it."""

from typing import Any

import pytest

from search.early_stopping import RULES
from search.early_stopping.rules.wrappable_rules import WRAPPABLE_RULES
from tests.unit.search.early_stopping.trials import Spec, Trials, complaints, rule_of

COMMON = "metric, direction, grace_steps"
ASHA_OPTIONS = (
    f"{COMMON}, min_step, reduction_factor, bootstrap_count, extra_count, whole_count, promote, "
    "min_early_stopping_rate, max_step"
)
RULES_TO_WRAP = ", ".join(WRAPPABLE_RULES)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"rule": "asha", "min_step": 0, "eta": 3},
            [
                "early_stopping.min_step: Input should be greater than or equal to 1",
                f"early_stopping.eta: unknown option; the options of asha: {ASHA_OPTIONS}",
            ],
        ),
        (
            {"rule": "luck"},
            [f"early_stopping.rule: unknown rule 'luck'; available: {', '.join(RULES)}"],
        ),
        ({"min_step": 1}, ["early_stopping.min_step: unknown option; the options of none: none"]),
        ("asha", ["early_stopping: must be an object such as {rule: asha}"]),
        ({"rule": "hyperband"}, ["early_stopping.max_step: is required: the last step of a trial that is not stopped"]),
        (
            {"rule": "hyperband", "min_step": 9, "max_step": 3},
            ["early_stopping: max_step must be at least min_step, which is 9"],
        ),
        ({"rule": "threshold"}, ["early_stopping: needs lower, upper or both"]),
        (
            {"rule": "threshold", "lower": 2, "upper": 1},
            ["early_stopping: lower must not be above upper, which is 1"],
        ),
        (
            {"rule": "patient", "patience": 1, "wrapped_rule": {"rule": "asha", "min_step": 0, "eta": 1}},
            [
                "early_stopping.wrapped_rule.min_step: Input should be greater than or equal to 1",
                f"early_stopping.wrapped_rule.eta: unknown option; the options of asha: {ASHA_OPTIONS}",
            ],
        ),
        (
            {"rule": "patient", "patience": -1, "wrapped_rule": {"rule": "patient"}},
            [
                f"early_stopping.wrapped_rule.rule: unknown rule 'patient'; available: {RULES_TO_WRAP}",
                "early_stopping.patience: Input should be greater than or equal to 0",
            ],
        ),
        (
            {"rule": "patient", "patience": 1, "wrapped_rule": {"rule": "asha", "metric": "loss", "grace_steps": 3}},
            [
                "early_stopping.wrapped_rule.metric: must be set on `patient` itself, not inside wrapped_rule",
                "early_stopping.wrapped_rule.grace_steps: must be set on `patient` itself, not inside wrapped_rule",
            ],
        ),
    ],
)
def test_a_wrong_rule_or_option_is_reported_with_the_available_ones(options: Any, expected: list[str]) -> None:
    assert complaints(lambda: Spec.model_validate({"early_stopping": options})) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "patient", "patience": 3, "wrapped_rule": {"rule": "hyperband", "max_step": 9}},
        {"rule": "patient", "patience": 3, "grace_steps": 2, "metric": "loss", "direction": "minimize"},
        {"rule": "percentile", "percentile": 25},
    ],
)
def test_a_rule_survives_json(options: dict[str, Any]) -> None:
    spec = Spec.model_validate({"early_stopping": options})
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec


def test_the_rule_none_has_no_verdicts() -> None:
    assert Trials(rule_of()).ran(0, [0.1] * 9) == Trials(rule_of(rule="none")).ran(0, [0.1] * 9) == []
