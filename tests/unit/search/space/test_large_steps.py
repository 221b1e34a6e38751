"""Steps of floats whose range is large beside them."""

from search.space.space import Space


def test_a_float_between_or_beside_the_steps_is_no_step_however_large_the_numbers_are() -> None:
    low, high, step = 1_700_000_000.0, 1_700_000_010.0, 0.5
    space = Space.model_validate({"x": {"type": "float", "low": low, "high": high, "step": step}})
    for value in (low, low + 2.5, high, low + 1e-6, high + 1e-6):
        assert space.mistakes_in({"x": value}) == []
    assert list(map(str, space.mistakes_in({"x": high + step}))) == [
        "x: must be between 1700000000 and 1700000010, not 1700000010.5"
    ]
    assert list(map(str, space.mistakes_in({"x": low - step}))) == [
        "x: must be between 1700000000 and 1700000010, not 1699999999.5"
    ]
    assert list(map(str, space.mistakes_in({"x": low + 0.1}))) == [
        "x: must be 1700000000 plus a multiple of 0.5, not 1700000000.1"
    ]


def test_the_ends_of_a_range_with_as_many_steps_as_a_float_can_count_are_values() -> None:
    for step in (0.1, 0.3, 0.5, 1.0):
        high = step * (2**53 - 4)
        space = Space.model_validate({"x": {"type": "float", "low": 0, "high": high, "step": step}})
        steps = space.root["x"].values() or ()
        for value in (0.0, steps[1], steps[2**52], steps[-2], steps[-1]):
            assert space.mistakes_in({"x": value}) == []
