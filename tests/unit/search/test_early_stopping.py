"""Verdicts give their reason, and mistakes in a rule are reported. Which trials are stopped is tested by the oracle."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from search.early_stopping import RULES, EarlyStoppingSpec, InMemoryHistory, MetricReport, Rule, Verdict
from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from search.early_stopping.rules.hyperband import Hyperband
from search.problem import Direction


class Spec(BaseModel):
    early_stopping: EarlyStoppingSpec


def rule_of(**options: Any) -> Rule:
    return Spec.model_validate({"early_stopping": options}).early_stopping


class Trials:
    """Trials that report to a rule one after another, as the service lets them."""

    def __init__(self, rule: Rule, direction: Direction = "maximize", metric: str = "val_accuracy") -> None:
        self.rule, self.direction, self.metric = rule, direction, metric
        self.memory = InMemoryHistory()

    def report(self, number: int, step: int, value: float) -> list[Verdict]:
        curve = self.memory.curves[number]
        report = MetricReport(number, self.metric, self.direction, step, value, max(curve, default=None))
        curve[step] = value
        return list(self.rule.decide(report, self.memory.of(number)))

    def complete(self, number: int) -> None:
        curve = self.memory.curves[number]
        self.memory.complete(self.rule, number, curve[max(curve)])

    def ran(self, number: int, values: Sequence[float], *, first_step: int = 1) -> list[Verdict]:
        """A trial that reports all of the values, even after a verdict to stop, and completes."""
        said = [
            verdict for step, value in enumerate(values, first_step) for verdict in self.report(number, step, value)
        ]
        self.complete(number)
        return said


def at_step_3(values: list[float], **options: Any) -> Trials:
    """Trials 0, 1, ... that reported only at step 3, and completed."""
    trials = Trials(rule_of(**options))
    for number, value in enumerate(values):
        trials.ran(number, [value], first_step=3)
    return trials


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
            "val_accuracy 0.71 at step 3 is below 0.83, the cutoff of the best third of 9 trials at rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3},
            0.88,
            BEST_THIRD,
            False,
            0.85,
            "val_accuracy 0.88 at step 3 is above 0.85, the cutoff of the best third of 9 trials at rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3, "reduction_factor": 7},
            0.9,
            BEST_THIRD,
            False,
            0.9,
            "val_accuracy 0.9 at step 3 is equal to 0.9, the cutoff of the best 1/7 of 9 trials at rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3, "extra_count": 1},
            0.45,
            BEST_THIRD,
            True,
            0.5,
            "val_accuracy 0.45 at step 3 is below 0.5, the cutoff of the best 4 of 9 trials at rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3, "extra_count": 9},
            0.82999,
            [0.83],
            False,
            0.82999,
            "val_accuracy 0.82999 at step 3 is equal to 0.82999, the cutoff of the best 2 of 2 trials at rung 3",
        ),
        (
            {"rule": "asha", "min_step": 3},
            0.82999,
            [0.83],
            True,
            0.83,
            "val_accuracy 0.82999 at step 3 is below 0.83, the cutoff of the best of 2 trials at rung 3",
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
            "no trial passes rung 3 until 3 have reached it, and val_accuracy 0.9 at step 3 is number 2",
        ),
        (
            {"rule": "asha", "min_step": 3, "grace_steps": 4},
            0.82,
            [0.83],
            False,
            0.83,
            (
                "val_accuracy 0.82 at step 3 is below 0.83, the cutoff of the best of 2 trials at rung 3; "
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


def test_the_median_rule_compares_the_best_value_so_far_with_completed_trials_only() -> None:
    trials = Trials(rule_of(rule="median", n_startup_trials=1), "minimize", "loss")
    trials.ran(0, [0.3, 0.3])
    trials.report(1, 2, 0.0)
    trials.report(2, 1, 0.2)
    [verdict] = trials.report(2, 2, 0.9)
    assert (verdict.stop, verdict.value, verdict.compared_with) == (False, 0.2, (0,))


def test_a_jump_over_several_rungs_reaches_them_all_once() -> None:
    trials = Trials(rule_of(rule="asha", min_step=1, reduction_factor=3))
    assert [verdict.milestone for verdict in trials.report(0, 10, 0.5)] == [1, 3, 9]
    assert trials.report(0, 26, 0.6) == []
    assert trials.report(0, 9, 0.7) == []  # a retry goes over known ground
    assert [verdict.milestone for verdict in trials.report(0, 27, 0.5)] == [27]


def test_a_trial_of_hyperband_is_compared_only_within_its_bracket() -> None:
    rule = rule_of(rule="hyperband", max_step=9)
    assert isinstance(rule, Hyperband)
    brackets = [rule.bracket_of(number) for number in range(100)]
    assert set(brackets) == {0, 1, 2}
    trials = Trials(rule)
    for number, bracket in enumerate(brackets):
        said = trials.report(number, 9, 0.5)
        assert [verdict.milestone for verdict in said] == [1, 3, 9][bracket:]
        assert said[0].compared_count == brackets[:number].count(bracket)
        assert f"rung {3**bracket} of bracket {bracket}" in said[0].reason


def test_a_threshold_names_the_violated_bound() -> None:
    trials = Trials(rule_of(rule="threshold", lower=0.2, upper=0.8))
    verdicts = [trials.report(0, step, value)[0] for step, value in enumerate([0.5, 0.75, 0.9, 0.1])]
    assert [(verdict.stop, verdict.cutoff) for verdict in verdicts] == [
        (False, 0.2),
        (False, 0.8),
        (True, 0.8),
        (True, 0.2),
    ]
    assert verdicts[2].reason == "val_accuracy 0.9 at step 2 is above 0.8, the upper bound"


def test_patience_is_exhausted_when_the_last_reports_are_worse_than_the_best_before() -> None:
    trials = Trials(rule_of(rule="patient", patience=1))
    assert trials.ran(0, [0.5, 0.6, 0.55, 0.6, 0.7]) == []
    [verdict] = trials.ran(1, [0.5, 0.6, 0.55, 0.59])
    assert (verdict.stop, verdict.step, verdict.value, verdict.cutoff) == (True, 4, 0.59, 0.6)
    assert verdict.reason == "the best val_accuracy of the last 2 reports, 0.59, is below 0.6, the best before"


def test_a_patient_rule_gives_the_reason_of_the_wrapped_rule() -> None:
    trials = Trials(rule_of(rule="patient", patience=0, wrapped_rule={"rule": "median", "n_startup_trials": 1}))
    trials.ran(0, [0.7, 0.8, 0.9])
    assert trials.report(1, 1, 0.1) == []
    [verdict] = trials.report(1, 2, 0.05)
    assert (verdict.stop, verdict.rule, verdict.cutoff) == (True, "patient", 0.8)
    assert verdict.reason == (
        "the best val_accuracy of the last 1 reports, 0.05, is below 0.1, the best before, "
        "and the best val_accuracy up to step 2, 0.1, is below 0.8, the median of 1 completed trials there"
    )


def test_the_wilcoxon_rule_names_the_best_trial_and_the_p_value() -> None:
    trials = Trials(rule_of(rule="wilcoxon"))
    trials.ran(0, [0.6] * 8)
    trials.ran(1, [0.9 + step / 100 for step in range(8)])
    for step in (3, 1, 5, 2):
        trials.report(2, step, 0.5 - step / 50)
    [verdict] = trials.report(2, 4, 0.4)
    assert (verdict.stop, verdict.compared_with, verdict.compared_count) == (True, (1,), 1)
    assert "over 5 shared steps" in verdict.reason
    assert "that of trial 1, the best trial so far (p = 0.0312 that it is no worse, below 0.1)" in verdict.reason


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_of_the_best_trials_that_tie_the_oldest_is_compared_with(direction: Direction) -> None:
    trials = Trials(rule_of(rule="wilcoxon"), direction)
    for number in range(3):
        trials.ran(number, [0.5 + number / 10, 0.7])
    trials.report(3, 1, 0.5)
    [verdict] = trials.report(3, 2, 0.6)
    assert verdict.compared_with == (0,)


def test_the_rule_none_has_no_verdicts() -> None:
    assert Trials(rule_of()).ran(0, [0.1] * 9) == Trials(rule_of(rule="none")).ran(0, [0.1] * 9) == []


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


COMMON = "metric, direction, grace_steps"
ASHA_OPTIONS = (
    f"{COMMON}, min_step, reduction_factor, bootstrap_count, extra_count, promote, min_early_stopping_rate, max_step"
)
RUNG_RULES = "asha, hyperband, median, percentile, threshold, wilcoxon, none"


def complaints(make: Callable[[], object]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        make()
    return [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()]


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
            {"rule": "mean"},
            [f"early_stopping.rule: unknown rule 'mean'; available: {', '.join(RULES)}"],
        ),
        ({"min_step": 1}, ["early_stopping.min_step: unknown option; the options of none: none"]),
        ("asha", ["early_stopping: must be an object such as {rule: asha}"]),
        ({"rule": "hyperband"}, ["early_stopping.max_step: is required"]),
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
                f"early_stopping.wrapped_rule.rule: unknown rule 'patient'; available: {RUNG_RULES}",
                "early_stopping.patience: Input should be greater than or equal to 0",
            ],
        ),
        (
            {"rule": "patient", "patience": 1, "wrapped_rule": {"rule": "asha", "metric": "loss", "grace_steps": 3}},
            [
                "early_stopping.wrapped_rule.metric: belongs beside wrapped_rule",
                "early_stopping.wrapped_rule.grace_steps: belongs beside wrapped_rule",
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
