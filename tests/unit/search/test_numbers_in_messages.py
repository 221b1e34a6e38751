"""Numbers in messages."""

import pytest

from search.numbers_in_messages import counted, distinct_texts


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((0.0001, 0.1, 7), ["0.0001", "0.1", "7"]),
        ((0.0001, 0.1, 0.1000001), ["0.0001", "0.1", "0.1000001"]),
        ((1_000_000, 1_000_001), ["1000000", "1000001"]),
        ((0.3, 0.1 + 0.2), ["0.3", "0.30000000000000004"]),
        ((5, 5), ["5", "5"]),
    ],
)
def test_different_numbers_have_different_texts(numbers: tuple[float, ...], texts: list[str]) -> None:
    assert distinct_texts(*numbers) == texts


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 GPUs"), (0.5, "0.5 GPUs"), (1, "1 GPU"), (1.0, "1 GPU"), (8.0, "8 GPUs"), (12_345_678, "12345678 GPUs")],
)
def test_a_noun_follows_its_count(count: float, text: str) -> None:
    assert counted(count, "GPU") == text
