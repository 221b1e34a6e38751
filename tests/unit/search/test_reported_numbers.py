"""Which reported texts are numbers."""

import pytest

from search.reported_numbers import finite_number, is_decimal, is_number


@pytest.mark.parametrize("text", ["1", "-1.", "+.5", " 1e-3 ", "0.30000000000000004", "1.E+5"])
def test_texts_of_numbers(text: str) -> None:
    assert is_number(text)
    assert is_decimal(text)
    assert finite_number(text) == float(text)


@pytest.mark.parametrize("text", ["", ".", "-", "1e", "1,5", "1_000", "0x1F", "\u0661", "1 2", "nan?"])
def test_other_texts(text: str) -> None:
    assert not is_number(text)
    assert finite_number(text) is None


@pytest.mark.parametrize("text", ["NaN", "-inf", " Infinity "])
def test_texts_of_numbers_that_are_not_finite(text: str) -> None:
    assert is_number(text)
    assert not is_decimal(text)
    assert finite_number(text) is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("beginning", ["", "-", ".", "1e", " "])
def test_a_long_text_is_read_in_linear_time(beginning: str) -> None:
    """Whatever a training function reports is read in the service's own process."""
    text = beginning + "1" * 1_000_000 + "x"
    assert not is_number(text)
    assert finite_number(text) is None
