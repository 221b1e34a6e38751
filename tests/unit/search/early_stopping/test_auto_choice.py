"""The choice of a stopping rule by what trials have shown."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping.auto_choice import MIN_TRIALS, choose_rule
from search.early_stopping.rule import MAX_COUNT
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.wrappable_rules import NoneSpec
from search.early_stopping.training_facts import Training, concordance
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
        ({"last_step": 360, "first_step": 100}, 100),  # steps that continue an earlier training's
        ({"last_step": 2 * 10**9, "report_count": 100}, 74_074_075),  # counts tokens
    ],
)
def test_the_lowest_rung_is_where_trials_can_be_compared(facts: dict[str, Any], min_step: int) -> None:
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


@pytest.mark.parametrize(
    ("concordances", "min_step"),
    [
        ({"1": 1.0, "3": 1.0, "9": 1.0}, 1),
        ({"1": 0.1, "3": 0.1, "9": 0.667}, 1),
        ({"1": 0.667, "3": 0.1, "9": 0.1}, 1),
        ({"1": 0.5, "3": 0.5, "9": 0.333}, None),
    ],
)
def test_no_trial_is_stopped_where_ranks_tell_nothing_of_the_ends(concordances: Any, min_step: int | None) -> None:
    training = replace(CHEAP, trial_count=4, concordances=concordances)
    chosen = choose_rule(replace(PROBLEM, parallelism=8), training)
    assert getattr(chosen.rule, "min_step", None) == min_step
    if min_step is None:
        assert chosen.reason.startswith("the ranking of the first 4 trials at steps 1, 3 and 9 did not predict")


@pytest.mark.parametrize(("parallelism", "needed"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_as_many_trials_as_run_together_decide_at_most_four(parallelism: int, needed: int) -> None:
    problem = replace(PROBLEM, parallelism=parallelism)
    for count in range(1, needed):
        chosen = choose_rule(problem, replace(CHEAP, trial_count=count))
        assert chosen.rule.rule == "auto"
        assert f"to the end ({count} so far)" in chosen.reason
    assert isinstance(choose_rule(problem, replace(CHEAP, trial_count=needed)).rule, Hyperband)


@pytest.mark.parametrize(("whole", "extra"), [(1, 1), (3, 1), (4, 0)])
def test_one_more_trial_passes_each_rung_where_few_whole_trials_are_known(whole: int, extra: int) -> None:
    rule = choose_rule(replace(PROBLEM, parallelism=whole), replace(CHEAP, trial_count=whole)).rule
    assert isinstance(rule, Hyperband)
    assert (rule.promote, rule.extra_count) == (True, extra)


RUNNING = Training(
    2, report_count=3, last_step=3, first_step=1, checkpoint_gap=1, start_seconds=1, seconds=30, trial_count=0
)


@pytest.mark.parametrize(
    ("facts", "shows"),
    [
        ({}, True),
        ({"report_count": 2}, False),
        ({"checkpoint_gap": None}, False),
        ({"start_seconds": 31}, False),
        ({"start_seconds": None, "seconds": None}, False),
    ],
)
def test_a_running_trial_shows_the_lowest_rung(facts: dict[str, Any], shows: bool) -> None:
    assert replace(RUNNING, **facts).shows_lowest_rung is shows


@given(st.integers(0, 2**53), st.integers(0, 10**6), st.integers(5, 1000))
def test_an_assumed_length_grows_by_the_factor_of_the_rungs(last_step: int, count: int, parallelism: int) -> None:
    seen = replace(RUNNING, last_step=last_step)
    assumed = seen.for_trials(count, parallelism)
    more = seen.for_trials(count + 4 * parallelism, parallelism)
    assert assumed.is_length_assumed
    assert more.length in (assumed.length, 3 * assumed.length, MAX_COUNT)
    rule = choose_rule(replace(PROBLEM, parallelism=parallelism), assumed).rule
    if isinstance(rule, Hyperband):
        assert (rule.promote, rule.whole_count, rule.max_step) == (True, 4, assumed.length)
        assert seen.for_trials(parallelism, parallelism).rungs[0] <= rule.min_step


def test_no_length_is_assumed_where_trials_could_not_be_paused() -> None:
    dear = replace(RUNNING, start_seconds=500, assumed_max_step=81)
    assert choose_rule(replace(PROBLEM, parallelism=8), dear).rule.rule == "auto"


def test_concordance_is_the_share_of_pairs_in_the_same_order() -> None:
    assert concordance([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert concordance([4, 3, 2, 1], [10, 20, 30, 40]) == 0
    assert concordance([1, 2, 4, 3], [10, 20, 30, 40]) == pytest.approx(5 / 6)
    assert concordance([1, 1, 1, 1], [10, 20, 30, 40]) == 0.5


@pytest.mark.parametrize("scale", [1e-300, 1e307])
def test_concordance_does_not_depend_on_the_scale(scale: float) -> None:
    values = [-3 * scale, -scale, 0.0, scale, 3 * scale]
    assert concordance(values, values) == 1
    assert concordance([10 * one for one in values], [0.0] * 5) == 0.5
    assert concordance(values, values[::-1]) == 0


@given(
    st.builds(
        Training,
        number=st.integers(0, 9),
        report_count=st.integers(1, 10**6),
        last_step=st.integers(0, 100) | st.integers(0, MAX_COUNT),
        first_step=st.integers(0, 100) | st.integers(0, MAX_COUNT),
        checkpoint_gap=st.none() | st.integers(0, MAX_COUNT),
        start_seconds=st.none() | st.floats(0, 1e6),
        seconds=st.none() | st.floats(0, 1e6),
        concordances=st.dictionaries(st.sampled_from(["1", "3", "9"]), st.floats(0, 1)),
        trial_count=st.integers(0, 4),
        max_step=st.none() | st.integers(1, 100) | st.integers(1, MAX_COUNT),
    ).filter(lambda training: training.first_step <= training.last_step)
)
def test_any_training_leads_to_a_valid_rule_with_a_reason(training: Training) -> None:
    chosen = choose_rule(PROBLEM, training)
    assert type(chosen.rule).model_validate(chosen.rule.model_dump()) == chosen.rule
    assert chosen.reason
    assert training.after(training) == training


@given(st.integers(1, MAX_COUNT))
def test_any_given_length_leads_to_a_valid_rule_with_a_reason(max_step: int) -> None:
    chosen = choose_rule(PROBLEM, Training.given(max_step))
    assert type(chosen.rule).model_validate(chosen.rule.model_dump()) == chosen.rule
    assert chosen.reason.startswith(f"max_step is {max_step}; ")
