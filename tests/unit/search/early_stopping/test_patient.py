"""Patience around another rule stops the trials that Optuna prunes."""

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping.rules.wrappable_rules import PLUGINS, WRAPPABLE_RULES
from search.problem import Direction
from tests.conftest import examples
from tests.unit.search.early_stopping.oracle import DIRECTIONS, decisions_agree
from tests.unit.search.early_stopping.trials import Trials, rule_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:WilcoxonPruner finds steps"),
]
WRAPPED: dict[str, tuple[dict[str, Any], Callable[[], optuna.pruners.BasePruner | None]]] = {
    "none": ({"rule": "none"}, lambda: None),
    "asha": (
        {"rule": "asha", "reduction_factor": 2},
        lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    ),
    "median": ({"rule": "median", "n_startup_trials": 1}, lambda: optuna.pruners.MedianPruner(1)),
    "hyperband": (
        {"rule": "hyperband", "max_step": 9},
        lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=3),
    ),
    "percentile": (
        {"rule": "percentile", "percentile": 30, "n_startup_trials": 1},
        lambda: optuna.pruners.PercentilePruner(30, n_startup_trials=1),
    ),
    "wilcoxon": ({"rule": "wilcoxon", "p_threshold": 0.3}, lambda: optuna.pruners.WilcoxonPruner(p_threshold=0.3)),
    "threshold": (
        {"rule": "threshold", "upper": 0.5, "interval_steps": 2},
        lambda: optuna.pruners.ThresholdPruner(upper=0.5, interval_steps=2),
    ),
}

WITHOUT_PRUNER = set(PLUGINS.kinds)
"""Rules that Optuna does not have."""


@pytest.mark.parametrize("wrapped", WRAPPED)
@given(
    data=st.data(),
    direction=DIRECTIONS,
    patience=st.integers(0, 3),
    min_delta=st.sampled_from([0.0, 0.0, 0.25, 10.0]),
)
@examples(50)
def test_patient_stops_the_trials_that_optuna_prunes(
    wrapped: str, data: st.DataObject, direction: Direction, patience: int, min_delta: float
) -> None:
    options, pruner = WRAPPED[wrapped]
    rule = rule_of(rule="patient", wrapped_rule=options, patience=patience, min_delta=min_delta)
    patient = optuna.pruners.PatientPruner(pruner(), patience, min_delta)
    last_step, by_average = options.get("max_step"), wrapped == "wilcoxon"
    decisions_agree(data, rule, patient, direction, jump=3, by_average=by_average, last_step=last_step)


def test_every_rule_that_patient_may_wrap_is_compared_with_optuna() -> None:
    assert set(WRAPPED) | WITHOUT_PRUNER == set(WRAPPABLE_RULES)


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
        "and the best val_accuracy up to step 2, 0.1, is below 0.8, the median of 1 completed trial there"
    )


def test_the_first_trials_of_a_wrapped_rule_run_to_their_ends() -> None:
    wrapped = {"rule": "asha", "whole_count": 1}
    trials = Trials(rule_of(rule="patient", patience=0, wrapped_rule=wrapped))
    stops = []
    for number in (2, 1, 0):
        said = [one for step in range(1, 10) for one in trials.report(number, step, 0.3 * number - 0.01 * step)]
        stops.append(any(one.stop for one in said))
    assert stops == [False, True, False]
