"""Verdicts give their reason, also for the largest and for infinite values."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.search.early_stopping.trials import Trials, at_step_3, rule_of

BEST_THIRD = [0.9, 0.85, 0.83, 0.5, 0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "value", "peers", "stop", "cutoff", "reason"),
    [
        (
            {"rule": "asha", "min_step": 3},
            0.71,
            BEST_THIRD,
            True,
            0.83,
            (
                "val_accuracy 0.71 at step 3 is below 0.83, "
                "the cutoff of the best third of 9 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3},
            0.88,
            BEST_THIRD,
            False,
            0.85,
            (
                "val_accuracy 0.88 at step 3 is above 0.85, "
                "the cutoff of the best third of 9 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3, "reduction_factor": 7},
            0.9,
            BEST_THIRD,
            False,
            0.9,
            (
                "val_accuracy 0.9 at step 3 is equal to 0.9, "
                "the cutoff of the best 1/7 of 9 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3, "extra_count": 1},
            0.45,
            BEST_THIRD,
            True,
            0.5,
            (
                "val_accuracy 0.45 at step 3 is below 0.5, "
                "the cutoff of the best 4 of 9 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3, "extra_count": 9},
            0.82999,
            [0.83],
            False,
            0.82999,
            (
                "val_accuracy 0.82999 at step 3 is equal to 0.82999, "
                "the cutoff of the best 2 of 2 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3},
            0.82999,
            [0.83],
            True,
            0.83,
            (
                "val_accuracy 0.82999 at step 3 is below 0.83, "
                "the cutoff of the best 1 of 2 trials (this one included) at rung 3"
            ),
        ),
        (
            {"rule": "asha", "min_step": 3},
            0.1,
            [],
            False,
            None,
            "val_accuracy 0.1 at step 3 is the first to reach rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3, "bootstrap_count": 2},
            0.9,
            [0.1],
            True,
            0.9,
            "val_accuracy 0.9 at step 3; 2 trials have reached rung 3, and none passes before 3 have",
        ),
        (
            {"rule": "asha", "min_step": 3, "grace_steps": 4},
            0.82,
            [0.83],
            False,
            0.83,
            (
                "val_accuracy 0.82 at step 3 is below 0.83, "
                "the cutoff of the best 1 of 2 trials (this one included) at rung 3; "
                "no trial is stopped before step 4"
            ),
        ),
        (
            {"rule": "median"},
            0.71,
            [0.7, 0.8, 0.9, 0.75, 0.8],
            True,
            0.8,
            "the best val_accuracy up to step 3, 0.71, is below 0.8, the median of 5 completed trials there",
        ),
        (
            {"rule": "percentile", "percentile": 25},
            0.85,
            [0.7, 0.8, 0.9, 0.75, 0.8],
            False,
            0.8,
            (
                "the best val_accuracy up to step 3, 0.85, is above 0.8, "
                "the edge of the best 25% of 5 completed trials there"
            ),
        ),
    ],
)
def test_a_verdict_reads_as_a_sentence(
    options: dict[str, Any], value: float, peers: list[float], *, stop: bool, cutoff: float | None, reason: str
) -> None:
    [verdict] = at_step_3(peers, **options).report(len(peers), 3, value)
    assert (verdict.stop, verdict.cutoff, verdict.reason) == (stop, cutoff, reason)
    assert (verdict.rule, verdict.step, verdict.milestone) == (options["rule"], 3, 3)
    assert (verdict.value, verdict.compared_count) == (value, len(peers))


def test_a_verdict_names_the_trials_nearest_to_its_cutoff() -> None:
    trials = at_step_3([number / 100 for number in range(60)], rule="asha", min_step=3)
    [verdict] = trials.report(60, 3, 0.001)
    assert verdict.cutoff == 0.4
    assert verdict.compared_count == 60
    assert verdict.compared_with == (45, 44, 43, 42, 41, 40, 39, 38, 37, 36)


INFINITE = float("inf")


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "asha", "reduction_factor": 2, "min_step": 3},
        {"rule": "median", "n_startup_trials": 0},
        {"rule": "percentile", "percentile": 30, "n_startup_trials": 0},
    ],
)
@given(value=st.sampled_from([0.5, INFINITE, -INFINITE]), others=st.lists(st.sampled_from([0.0, INFINITE, -INFINITE])))
def test_infinite_values_are_judged_and_never_become_a_cutoff(
    rule: dict[str, Any], value: float, others: list[float]
) -> None:
    trials = Trials(rule_of(**rule), "minimize")
    for number, other in enumerate(others):
        trials.ran(number, [other], first_step=3)
    for verdict in trials.report(len(others), 3, value):
        assert verdict.cutoff in (None, 0.0, 0.5)
        assert not verdict.stop or value > min(others)


HUGE = 1.7e308


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "asha"},
        {"rule": "median", "n_startup_trials": 1},
        {"rule": "threshold", "lower": -HUGE},
        {"rule": "patient", "patience": 0, "min_delta": HUGE},
        {"rule": "wilcoxon", "p_threshold": 1},
    ],
    ids=lambda rule: rule["rule"],
)
def test_the_largest_floats_are_judged_like_others(rule: dict[str, Any]) -> None:
    trials = Trials(rule_of(**rule))
    for number, values in enumerate([[HUGE] * 4, [-HUGE, HUGE, -HUGE, -HUGE], [-HUGE] * 4]):
        for verdict in trials.ran(number, values):
            assert math.isfinite(verdict.value)
            assert verdict.cutoff is None or math.isfinite(verdict.cutoff)
