"""Values that are drawn from a part of a parameter's range."""

import numpy as np

from search.space.axes import Values


def test_a_whole_number_is_drawn_on_its_logarithmic_scale() -> None:
    drawn = [Values(range(1, 4097)).between((0, 4095), share, log=True) for share in np.linspace(0, 1, 1000, False)]
    assert drawn[0] == 1
    assert drawn[-1] in range(4000, 4097)
    assert abs(float(np.log2(np.array(drawn, dtype=float)).mean()) - 5.6) < 0.2


def test_every_whole_number_of_the_part_is_drawn_and_no_other() -> None:
    shares = np.linspace(0, 1, 1000, endpoint=False)
    assert {Values(range(1, 100)).between((2, 6), share, log=True) for share in shares} == {3, 4, 5, 6, 7}
    assert {Values(range(0, 100, 2)).between((2, 6), share, log=False) for share in shares} == {4, 6, 8, 10, 12}


def test_the_largest_whole_number_stays_in_the_range() -> None:
    low, high = 2**53 - 2, 2**53
    drawn = {Values(range(low, high + 1)).between((0, 2), share, log=True) for share in (0.0, 0.5, 1 - 2**-53)}
    assert drawn <= {low, low + 1, high}
