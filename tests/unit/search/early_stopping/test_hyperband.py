"""Hyperband stops the trials that Optuna prunes, within brackets."""

import math
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from zlib import crc32

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping.rules.hyperband import Hyperband
from search.problem import Direction
from tests.unit.search.early_stopping.oracle import DIRECTIONS, decisions_agree, max_jump
from tests.unit.search.early_stopping.trials import Trials, rule_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@given(
    data=st.data(),
    direction=DIRECTIONS,
    min_step=st.integers(1, 2),
    max_step=st.integers(2, 30),
    reduction_factor=st.integers(2, 4),
    bootstrap_count=st.sampled_from([0, 0, 2]),
)
def test_hyperband_stops_the_trials_that_optuna_prunes(
    data: st.DataObject,
    direction: Direction,
    min_step: int,
    max_step: int,
    reduction_factor: int,
    bootstrap_count: int,
) -> None:
    pruner = optuna.pruners.HyperbandPruner(min_step, max_step, reduction_factor, bootstrap_count)
    rule = rule_of(
        rule="hyperband",
        min_step=min_step,
        max_step=max_step,
        reduction_factor=reduction_factor,
        bootstrap_count=bootstrap_count,
    )
    decisions_agree(data, rule, pruner, direction, jump=max_jump(min_step, reduction_factor), last_step=max_step)


def test_a_trial_of_hyperband_is_compared_only_within_its_bracket() -> None:
    rule = rule_of(rule="hyperband", max_step=9)
    assert isinstance(rule, Hyperband)
    brackets = [rule.bracket_of(number) for number in range(100)]
    assert set(brackets) == {0, 1, 2}
    trials = Trials(rule)
    for number, bracket in enumerate(brackets):
        said = [verdict for step in (1, 3, 9) for verdict in trials.report(number, step, 0.5)]
        assert [verdict.milestone for verdict in said] == [1, 3][bracket:]
        for verdict in said:
            assert verdict.compared_count == brackets[:number].count(bracket)
            assert f"of bracket {bracket}" in verdict.reason


@pytest.mark.parametrize(("max_step", "is_beyond_crc32"), [(9, False), (3**18, False), (10**10, True), (2**53, True)])
def test_each_bracket_gets_its_share_of_the_trials(max_step: int, *, is_beyond_crc32: bool) -> None:
    """A CRC-32, as Optuna takes it, reaches only the first 2^32 of the shares, of which there may be more."""
    rule, count = rule_of(rule="hyperband", max_step=max_step), 4000
    assert isinstance(rule, Hyperband)
    brackets = len(rule.first_rungs)
    shares = [math.ceil(brackets * 3**s / (s + 1)) for s in reversed(range(brackets))]
    found = Counter(rule.bracket_of(number) for number in range(count))
    for bracket, share in enumerate(shares):
        expected = count * share / sum(shares)
        assert found[bracket] == pytest.approx(expected, abs=4 * math.sqrt(expected) + 1)
    assert (sum(shares) > 2**32) == is_beyond_crc32
    if not is_beyond_crc32:
        ends = list(accumulate(shares))
        assert [rule.bracket_of(number) for number in range(count)] == [
            bisect_right(ends, crc32(f"hyperband_{number}".encode()) % ends[-1]) for number in range(count)
        ]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_trial_is_not_stopped_at_its_last_step(*, weighted: bool) -> None:
    trials = Trials(rule_of(rule="hyperband", max_step=9, weighted=weighted))
    for number in range(100):
        trials.create(number)
        if not any(verdict.stop for step in range(1, 9) for verdict in trials.report(number, step, -number)):
            assert not trials.report(number, 9, -number)


@pytest.mark.parametrize(
    ("min_step", "max_step", "reduction_factor", "count"),
    [(1, 243, 3, 6), (1, 242, 3, 5), (1, 3**20, 3, 21), (1, 3**20 - 1, 3, 20), (5, 5 * 10**6, 10, 7), (1, 1, 2, 1)],
)
def test_the_number_of_brackets_is_computed_without_rounding(
    min_step: int, max_step: int, reduction_factor: int, count: int
) -> None:
    rule = rule_of(rule="hyperband", min_step=min_step, max_step=max_step, reduction_factor=reduction_factor)
    assert isinstance(rule, Hyperband)
    pools = list(rule.pools_at(max_step))
    assert pools == list(range(count))
    assert {rule.bracket_of(number) for number in range(40 * count)} <= set(pools)
