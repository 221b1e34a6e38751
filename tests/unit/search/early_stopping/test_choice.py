"""The choice of a stopping rule by what trials have shown."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping.choice import MIN_TRIALS, Training, choose_rule
from search.early_stopping.rule import MAX_COUNT
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.wrappable import NoneSpec
from search.problem import Problem
from search.space.space import Space

PROBLEM = Problem(Space.model_validate({"lr": {"type": "float", "low": 0, "high": 1}}), ("minimize",), max_trials=50)
CHEAP = Training(3, report_count=27, last_step=27, checkpoint_gap=1, start_seconds=0.2, seconds=270)


def hyperband(training: Training) -> Hyperband:
    rule = choose_rule(PROBLEM, training).rule
    assert isinstance(rule, Hyperband)
    return rule


@pytest.mark.parametrize(
    ("facts", "min_step"),
    [
        ({}, 1),
        ({"last_step": 1000, "report_count": 1000}, 38),
        ({"last_step": 1000, "report_count": 10}, 100),  # a step at which trials report
        ({"last_step": 1000, "report_count": 1000, "checkpoint_gap": 50}, 50),  # little is trained again
        ({"last_step": 26}, 1),  # counted from 0
        ({"last_step": 2 * 10**9, "report_count": 100}, 74_074_075),  # counts tokens
    ],
)
def test_the_lowest_rung_is_where_trials_can_be_compared(facts: dict[str, int], min_step: int) -> None:
    assert hyperband(replace(CHEAP, **facts)).min_step == min_step


def test_promotion_needs_checkpoints_and_cheap_starts() -> None:
    assert hyperband(CHEAP).promote
    assert not hyperband(replace(CHEAP, checkpoint_gap=None)).promote
    assert not hyperband(replace(CHEAP, checkpoint_gap=10)).promote
    assert not hyperband(replace(CHEAP, start_seconds=1000.0)).promote
    assert not hyperband(replace(CHEAP, start_seconds=None, seconds=None)).promote
    assert not hyperband(replace(CHEAP, seconds=0.0)).promote  # all reports came together


def test_a_budget_without_a_limit_is_large_enough() -> None:
    assert choose_rule(replace(PROBLEM, max_trials=None), CHEAP).rule == hyperband(CHEAP)
    assert choose_rule(replace(PROBLEM, max_trials=MIN_TRIALS), CHEAP).rule == hyperband(CHEAP)
    assert choose_rule(replace(PROBLEM, max_trials=MIN_TRIALS - 1), CHEAP).rule == NoneSpec()


@given(
    st.builds(
        Training,
        number=st.integers(0, 9),
        report_count=st.integers(1, 10**6),
        last_step=st.integers(0, MAX_COUNT),
        checkpoint_gap=st.none() | st.integers(0, MAX_COUNT),
        start_seconds=st.none() | st.floats(0, 1e6),
        seconds=st.none() | st.floats(0, 1e6),
    )
)
def test_any_training_leads_to_a_valid_rule_with_a_reason(training: Training) -> None:
    chosen = choose_rule(PROBLEM, training)
    assert type(chosen.rule).model_validate(chosen.rule.model_dump()) == chosen.rule
    assert f"trial {training.number} " in chosen.reason
    assert training.after(training) == training
