"""ASHA stops the trials that Optuna prunes."""

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Direction
from tests.unit.search.early_stopping.oracle import DIRECTIONS, decisions_agree, max_jump
from tests.unit.search.early_stopping.trials import Trials, rule_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@given(
    data=st.data(),
    direction=DIRECTIONS,
    min_step=st.integers(1, 3),
    reduction_factor=st.integers(2, 4),
    rate=st.integers(0, 1),
    bootstrap_count=st.sampled_from([0, 0, 2]),
)
def test_asha_stops_the_trials_that_optuna_prunes(
    data: st.DataObject, direction: Direction, min_step: int, reduction_factor: int, rate: int, bootstrap_count: int
) -> None:
    shared = {
        "reduction_factor": reduction_factor,
        "min_early_stopping_rate": rate,
        "bootstrap_count": bootstrap_count,
    }
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=min_step, **shared)
    rule = rule_of(rule="asha", min_step=min_step, **shared)
    decisions_agree(data, rule, pruner, direction, jump=max_jump(min_step, reduction_factor))


@pytest.mark.parametrize(
    "options", [{"rule": "asha"}, {"rule": "asha", "promote": True}, {"rule": "hyperband"}], ids=str
)
def test_no_trial_is_stopped_at_its_last_step(options: dict[str, Any]) -> None:
    trials = Trials(rule_of(**options, min_step=1, max_step=30, reduction_factor=3))
    for number in range(6):
        assert not any(verdict.stop and verdict.step == 30 for verdict in trials.report(number, 30, -number))
    [*_, last] = trials.report(6, 30, -6)
    assert last.reason.endswith("; no trial is stopped at its last step, 30")


def test_a_report_that_passes_several_rungs_reaches_only_the_highest() -> None:
    trials = Trials(rule_of(rule="asha", min_step=1, reduction_factor=3))
    assert [verdict.milestone for verdict in trials.report(0, 10, 0.5)] == [9]
    assert trials.report(0, 26, 0.6) == []
    assert trials.report(0, 9, 0.7) == []  # a retry goes over known ground
    assert [verdict.milestone for verdict in trials.report(0, 27, 0.5)] == [27]


@pytest.mark.parametrize("options", [{"rule": "asha"}, {"rule": "asha", "promote": True}], ids=str)
def test_trials_that_report_each_step_are_not_compared_with_late_first_reports(options: dict[str, Any]) -> None:
    """A loss at step 9 is better than all at step 1, so that each of them would be stopped."""
    trials = Trials(rule_of(**options, max_step=27, reduction_factor=3, extra_count=1), "minimize")
    for number in range(6):
        trials.report(number, 9, 0.5 + number / 100)
    [first] = trials.report(6, 1, 0.9)
    assert not first.stop
    assert (first.milestone, first.compared_count) == (1, 0)


@pytest.mark.parametrize("promote", [False, True])
def test_the_first_trials_of_whole_count_are_compared_and_never_stopped(promote: bool) -> None:
    trials = Trials(rule_of(rule="asha", promote=promote, whole_count=2))
    assert [verdict.stop for verdict in trials.report(2, 1, 0.9)] == [promote]
    [spared] = trials.report(1, 1, 0.1)
    assert (spared.stop, spared.pauses, spared.compared_count) == (False, False, 1)
    assert spared.reason.endswith("; the first 2 trials run to the end")
    assert [verdict.stop for verdict in trials.report(3, 1, 0.0)] == [True]
