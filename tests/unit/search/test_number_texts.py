"""Numbers in messages."""

import pytest

from search.numbers_in_messages import distinct_texts


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((0.0001, 0.1, 7), ["0.0001", "0.1", "7"]),
        ((0.0001, 0.1, 0.1000001), ["0.0001", "0.1", "0.1000001"]),
        ((1_000_000, 1_000_001), ["1000000", "1000001"]),
        ((0.3, 0.1 + 0.2), ["0.29999999999999999", "0.30000000000000004"]),
        ((5, 5), ["5", "5"]),
    ],
)
def test_different_numbers_have_different_texts(numbers: tuple[float, ...], texts: list[str]) -> None:
    assert distinct_texts(*numbers) == texts
