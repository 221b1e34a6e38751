"""Means of confirmations, their ranking, and the test of the lead."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from search.analysis.confirmation import Confirmed, Lead, lead_in, ranked, verdict_of

A = Confirmed(3, 0.9, (0.71, 0.74, 0.78))
B = Confirmed(1, 0.95, (0.6, 0.69, 0.75, 0.7))


def lead(first: Confirmed, second: Confirmed) -> Lead:
    found = lead_in([first, second], "maximize")
    assert found
    return found


def test_the_value_that_a_configuration_was_chosen_for_is_in_no_mean() -> None:
    assert A.mean == pytest.approx((0.71 + 0.74 + 0.78) / 3)
    assert A.standard_error == pytest.approx(stats.sem(A.values))
    one = Confirmed(0, 1.0, (0.5,))
    assert (one.n, one.mean, one.standard_error) == (1, 0.5, None)
    assert Confirmed(0, 1.0, ()).mean is None


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    random=st.randoms(use_true_random=False),
)
def test_the_order_of_the_values_does_not_matter(values: list[float], random: Random) -> None:
    one = Confirmed(0, 1.0, tuple(values))
    other = Confirmed(1, 1.0, tuple(random.sample(values, len(values))))
    assert (one.mean, one.standard_error) == (other.mean, other.standard_error)
    assert one.mean is not None
    assert min(values) <= one.mean <= max(values)


def test_configurations_with_the_same_values_are_equal() -> None:
    """The one that the search has found better comes first."""
    first, second = Confirmed(0, 0.8, (0.82, 0.74, 0.71)), Confirmed(1, 0.9, (0.74, 0.71, 0.82))
    ranking = ranked([first, second], "maximize")
    assert [one.number for one in ranking] == [1, 0]
    assert "0 ahead of trial 0" in verdict_of(ranking, lead(*ranking))


def test_the_lead_is_tested_as_scipy_does() -> None:
    found, expected = lead(A, B), stats.ttest_ind(A.values, B.values, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.degrees_of_freedom == pytest.approx(expected.df)
    assert found.difference / found.standard_error == pytest.approx(expected.statistic)
    assert found.is_within_noise


def test_less_is_better_if_the_objective_is_minimized() -> None:
    assert [one.number for one in ranked([A, B], "maximize")] == [3, 1]
    assert [one.number for one in ranked([A, B], "minimize")] == [1, 3]
    found = lead_in([B, A], "minimize")
    assert found
    assert found.difference == pytest.approx(lead(A, B).difference)


def test_without_a_value_the_order_is_that_of_the_search() -> None:
    failed = [Confirmed(4, 0.3, (), failed_count=3), Confirmed(6, 0.1, (), failed_count=3)]
    assert [one.number for one in ranked(failed, "minimize")] == [6, 4]
    assert [one.number for one in ranked(failed, "maximize")] == [4, 6]


def test_failures_come_before_means_and_the_lower_number_decides_between_equals() -> None:
    fails = Confirmed(2, 0.9, (0.99, 0.98), failed_count=1)
    empty = Confirmed(0, 0.9, ())
    equal = Confirmed(7, 0.9, A.values)
    assert [one.number for one in ranked([fails, empty, equal, B, A], "maximize")] == [3, 7, 1, 2, 0]
    assert lead_in([A, fails], "maximize") is None
    assert "0 of its confirmations failed or broke a constraint, and 1 of those of the next one, trial 2" in verdict_of(
        [A, fails], None
    )


def test_failed_confirmations_of_an_only_configuration_are_named() -> None:
    fails = Confirmed(2, 0.9, (0.5, 0.5), failed_count=1)
    assert verdict_of([fails], None).endswith("; 1 of its confirmations failed or broke a constraint")
    assert "failed" not in verdict_of([A], None)


def test_a_lead_needs_two_values_of_both() -> None:
    single = Confirmed(2, 0.9, (0.5,))
    assert lead_in([A], "maximize") is None
    assert lead_in([A, single], "maximize") is None
    assert "too few confirmations" in verdict_of([A, single], None)


def test_values_without_noise_differ_or_not() -> None:
    high, low = Confirmed(0, 1.0, (0.5, 0.5)), Confirmed(1, 1.0, (0.4, 0.4))
    assert (lead(high, low).p_value, lead(high, low).is_within_noise) == (None, False)
    assert lead(high, Confirmed(1, 1.0, (0.5, 0.5))).is_within_noise
    steady = Confirmed(1, 1.0, (0.4, 0.4, 0.4))
    assert math.isfinite(lead(A, steady).p_value or math.nan), "one of the two may be without noise"


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e160, 1e200, 1.7e308])
def test_values_of_any_size_are_compared_or_not(size: float) -> None:
    """The verdict is stored when an experiment ends, so it must not fail; JSON has no infinity."""
    first, second = Confirmed(0, size, (size, -size, size / 2)), Confirmed(1, size, (-size, size / 3, -size / 2))
    found = lead_in([first, second], "maximize")
    figures = [first.mean, first.standard_error]
    figures += [found.p_value, found.degrees_of_freedom] if found else []
    assert all(one is None or math.isfinite(one) for one in figures)
    assert verdict_of([first, second], found)
    if 1e-200 <= size <= 1e200:
        assert found
        assert found.p_value == pytest.approx(stats.ttest_ind([1, -1, 0.5], [-1, 1 / 3, -0.5], equal_var=False).pvalue)


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (0.0, "0.142333 (n=3, standard error 0.00033), 0.129 ahead"),
        (-1e6, "-999999.857667 (n=3, standard error 0.00033), 0.129 ahead"),
        (1e12, "1000000000000.1423 (n=3, standard error 0.00033), 0.129 ahead"),
        (1e300, "1e+300 (n=3, standard error 0), 0 ahead"),
    ],
)
def test_a_mean_has_the_digits_that_its_error_and_its_lead_have(offset: float, shown: str) -> None:
    first = Confirmed(0, offset, tuple(offset + one for one in (0.142, 0.142, 0.143)))
    second = Confirmed(1, offset, tuple(offset + one for one in (0.271, 0.271, 0.272)))
    found = lead_in([first, second], "minimize")
    assert verdict_of([first, second], found).startswith(f"trial 0 has mean {shown}")


def test_a_mean_without_noise_has_the_digits_of_its_lead() -> None:
    first, second = (Confirmed(0, 1.0, (1e9 + one,) * 3) for one in (0.25, 0.5))
    assert "mean 1000000000.25 " in verdict_of([first, second], lead_in([first, second], "minimize"))


def test_a_verdict_is_a_sentence() -> None:
    assert verdict_of([A, B], lead(A, B)) == (
        "trial 3 has mean 0.743333 (n=3, standard error 0.02), 0.0583 ahead of trial 1, which is within noise "
        "(Welch's t-test, p=0.18): either may be the better one"
    )
    worse = Confirmed(1, 0.9, (0.1, 0.11, 0.12))
    assert "more than noise" in verdict_of([A, worse], lead(A, worse))
    assert verdict_of([A], None) == "trial 3 has mean 0.743333 (n=3, standard error 0.02)"
    assert "no confirmation has ended with a value" in verdict_of([Confirmed(0, 1.0, ())], None)
