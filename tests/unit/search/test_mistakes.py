"""The texts of mistakes that pydantic finds: they name no classes of ours, and say what would be right."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from search.mistakes import MAX_LISTED, listed, parse


class Part(BaseModel):
    size: int


class Whole(BaseModel):
    part: Part | None = None
    few: Annotated[tuple[int, ...], Field(max_length=2)] = ()
    some: Annotated[list[int], Field(min_length=1)] = [1]
    one: Annotated[list[int], Field(max_length=1)] = []


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        ({"part": 3}, "part: must be an object"),
        ({"few": [1, 2, 3]}, "few: must have at most 2 entries, not 3"),
        ({"some": []}, "some: must have at least 1 entry, not 0"),
        ({"one": [1, 2]}, "one: must have at most 1 entry, not 2"),
    ],
)
def test_a_mistake_is_in_the_words_of_the_user(given: object, mistake: str) -> None:
    _, mistakes = parse(TypeAdapter(Whole), given)
    assert [str(one) for one in mistakes] == [mistake]


def test_of_many_names_the_first_ones_are_listed() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(range(MAX_LISTED + 1)).endswith(f"{MAX_LISTED - 1}, …")
    assert listed(range(MAX_LISTED)).endswith(f"{MAX_LISTED - 1}")
