"""With `weighted`, new trials go to the brackets whose first rungs have predicted the ranks at the end."""

from collections import Counter

import pytest

from search.early_stopping import UNCOMPARED
from search.early_stopping.bracket import Bracket
from search.early_stopping.rules.bracket_weights import FIRST_SHARE, FIRST_TRIALS, LEAST_SHARE, MAX_TRIALS
from search.early_stopping.rules.hyperband import Hyperband
from tests.unit.search.early_stopping.trials import Trials, complaints, rule_of

LAST, COUNT = 9, 400
WEIGHTED = {"rule": "hyperband", "max_step": LAST, "weighted": True}


def brackets_after(trials: Trials) -> list[Bracket]:
    """The brackets of further trials, none of which reports."""
    found = [trials.create(number) for number in range(1000, 1000 + COUNT)]
    return [one for one in found if one is not None]


def shares(trials: Trials) -> dict[int, float]:
    return {one.number: one.share for one in brackets_after(trials)}


def after_trials(count: int, early: float) -> Trials:
    """Trials that complete, whose values at step 1 have the order of the ends times `early`."""
    trials = Trials(rule_of(**WEIGHTED))
    for number in range(count):
        trials.ran(number, [early * number, *[number] * (LAST - 1)])
    return trials


def test_without_evidence_brackets_have_the_shares_of_hyperband() -> None:
    found = brackets_after(Trials(rule_of(**WEIGHTED)))
    fixed = Counter(Hyperband(max_step=LAST).bracket_of(number) for number in range(10_000))
    for bracket, share in {one.number: one.share for one in found}.items():
        assert share == pytest.approx(fixed[bracket] / 10_000, abs=0.02)
    assert {(one.weight, one.trial_count) for one in found} == {(1.0, 0)}
    drawn = Counter(one.number for one in found)
    assert all(drawn[one.number] == pytest.approx(COUNT * one.share, abs=35) for one in found)


def test_the_first_trials_are_compared_from_the_lowest_rung_on() -> None:
    trials = Trials(rule_of(**WEIGHTED))
    first, later = (
        [one for number in numbers if (one := trials.create(number, seed=3)) is not None]
        for numbers in (range(FIRST_TRIALS), range(FIRST_TRIALS, FIRST_TRIALS + COUNT))
    )
    fixed = {one.number: one.share for one in later}
    assert len({one.share for one in first if one.number == 0}) == 1
    assert first[0].number == 0
    assert first[0].share == pytest.approx(FIRST_SHARE + (1 - FIRST_SHARE) * fixed[0])
    assert Counter(one.number for one in first)[0] > FIRST_TRIALS * fixed[0]


def test_first_trials_leave_the_lowest_bracket_where_its_rung_misleads() -> None:
    misled = after_trials(12, -1).create(12, seed=1)
    assert misled is not None
    assert (misled.number, misled.first_step) == (1, 3)
    assert misled.share > 0.5


def test_a_rung_that_misleads_loses_its_share_and_one_that_predicts_gains() -> None:
    fixed, misled, right = (shares(after_trials(*case)) for case in ((0, 1), (12, -1), (12, 1)))
    assert misled[0] == pytest.approx(LEAST_SHARE, abs=0.002)
    assert fixed[0] > 2 * misled[0]
    assert misled[1] > fixed[1]
    assert right[0] > fixed[0]
    assert right[2] < fixed[2]
    assert sum(right.values()) == pytest.approx(1)


def test_a_bracket_says_why_a_trial_got_it() -> None:
    found = {one.number: one for one in brackets_after(after_trials(12, -1))}
    pairs = 12 * 11 / 2
    assert found[0].agreement == pytest.approx((-pairs + 5) / (pairs + 10))
    assert (found[0].first_step, found[0].weight, found[0].trial_count) == (1, 0.0, 12)
    assert found[1].weight == pytest.approx(((pairs + 5) / (pairs + 10) / 0.5) ** 4)
    assert (found[2].first_step, found[2].weight, found[2].agreement) == (LAST, 1.0, None)


def test_values_whose_difference_overflows_are_compared() -> None:
    huge, plain = Trials(rule_of(**WEIGHTED)), Trials(rule_of(**WEIGHTED))
    for number, value in enumerate([-1.7e308, 1.7e308, 0.0]):
        huge.ran(number, [value] * LAST)
        plain.ran(number, [[-1.0, 1.0, 0.0][number]] * LAST)
    assert shares(huge) == shares(plain)


def test_a_bracket_whose_first_rung_no_trial_reports_at_is_weighed_by_the_next() -> None:
    """There its trials are compared first."""
    trials = Trials(rule_of(**WEIGHTED))
    for number in range(12):
        trials.ran(number, [*[-number] * (LAST - 4), number], first_step=4)
    found = {one.number: one for one in brackets_after(trials)}
    assert found[0].agreement == found[1].agreement
    assert (found[0].weight, found[0].trial_count) == (0.0, 12)


@pytest.mark.parametrize("last", [7, 8, 9, 10, 20, 50])
def test_one_bracket_stops_no_trial_whatever_the_length_of_a_training(last: int) -> None:
    rule = rule_of(**WEIGHTED | {"max_step": last})
    assert isinstance(rule, Hyperband)
    whole = len(rule.first_rungs) - 1
    assert (rule.first_rungs[whole], rule.first_rungs[whole - 1] < last) == (last, True)
    assert [pool for step in range(1, last) for pool in rule.pools_at(step) if pool == whole] == []


def test_trials_train_to_the_end_where_no_rung_tells_anything() -> None:
    trials = Trials(rule_of(**WEIGHTED | {"max_step": LAST - 1}))
    for number in range(12):
        trials.ran(number, [*[-number] * (LAST - 2), number])
    assert shares(trials) == {
        0: pytest.approx(0.02, abs=0.01),
        1: pytest.approx(0.02, abs=0.01),
        2: pytest.approx(0.96, abs=0.02),
    }


def test_the_same_history_gives_the_same_bracket_and_another_seed_another() -> None:
    one, again = after_trials(5, -1), after_trials(5, -1)
    assert brackets_after(one) == brackets_after(again)
    assert [one.create(number, seed=1) for number in range(9, 99)] != [one.create(number) for number in range(9, 99)]


@pytest.mark.slow
def test_only_the_newest_trials_are_weighed() -> None:
    trials = after_trials(MAX_TRIALS, -1)
    for number in range(MAX_TRIALS, 2 * MAX_TRIALS):
        trials.ran(number, [number] * LAST)
    assert {one.trial_count for one in brackets_after(trials)} <= {0, MAX_TRIALS}
    assert shares(trials) == shares(after_trials(MAX_TRIALS, 1))


def test_a_trial_is_recorded_at_all_rungs_and_compared_from_the_first_of_its_bracket_on() -> None:
    trials = Trials(rule_of(**WEIGHTED))
    brackets = {number: trials.create(number) for number in range(60)}
    assert {one.number for one in brackets.values() if one} == {0, 1, 2}
    for number, bracket in brackets.items():
        assert bracket
        said = [verdict for step in range(1, LAST + 1) for verdict in trials.report(number, step, number)]
        assert [verdict.milestone for verdict in said] == [1, 3][bracket.number :]
        earlier = [one.number for other, one in brackets.items() if other < number and one]
        assert {verdict.compared_count for verdict in said} <= {earlier.count(bracket.number)}
        pools = {step: pool for step, (_, pool) in trials.memory.reached[number].items()}
        assert pools == {step: bracket.number if step >= bracket.first_step else UNCOMPARED for step in (1, 3)}


def test_a_trial_without_a_stored_bracket_has_that_of_its_number() -> None:
    weighted, fixed = rule_of(**WEIGHTED), rule_of(rule="hyperband", max_step=LAST)
    assert [weighted.pool_of(number) for number in range(50)] == [fixed.pool_of(number) for number in range(50)]
    assert [weighted.pool_of(number, 2) for number in range(50)] == [2] * 50
    assert [fixed.pool_of(number, 2) for number in range(50)] == [fixed.pool_of(number) for number in range(50)]
    assert rule_of(**WEIGHTED | {"max_step": 3}).pool_of(0, 2) == 1  # the rule has lost a bracket since


def test_patience_does_not_wrap_a_rule_that_weighs_brackets() -> None:
    said = complaints(lambda: rule_of(rule="patient", patience=1, wrapped_rule=WEIGHTED))
    assert len(said) == 1
    assert "must be hyperband without weighted: patient does not record improving trials at rungs" in said[0]
