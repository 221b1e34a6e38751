"""Interpolation on a logarithmic scale, also between ends whose quotient no float holds."""

import math

from hypothesis import given
from hypothesis import strategies as st

from search.space.log_interpolation import interpolate_log
from tests.conftest import examples

POSITIVE = st.floats(min_value=5e-324, allow_infinity=False)


@given(ends=st.tuples(POSITIVE, POSITIVE), share=st.floats(0, 1))
@examples(200)
def test_the_logarithm_of_the_value_divides_the_range(ends: tuple[float, float], share: float) -> None:
    first, last = min(ends), max(ends)
    low, high = math.log(first), math.log(last)
    # Below 1e-300 floats lose digits, so the tolerance is of the logarithm, not of the value.
    found = math.log(interpolate_log(first, last, share))
    assert math.isclose(found, low + share * (high - low), rel_tol=1e-9, abs_tol=0.7)
