"""The signed-rank test of the wilcoxon rule, with SciPy's as the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from search.early_stopping.rules.signed_rank import signed_rank_p

WHOLE = st.lists(st.integers(-4, 4).map(float), min_size=2, max_size=60)
ANY = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=60)


@pytest.mark.slow
@given(WHOLE | ANY)
def test_the_p_value_is_that_of_scipy(differences: list[float]) -> None:
    expected = wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue
    assert signed_rank_p(differences) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_larger_differences_have_smaller_p_values() -> None:
    assert signed_rank_p([1.0] * 5) == 1 / 32
    assert signed_rank_p([-1.0] * 5) == 1
    assert signed_rank_p([0.0] * 20) == 0.5
