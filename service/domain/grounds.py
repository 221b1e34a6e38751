"""What an early-stopping decision is based on: the one definition that storage, events, views and replays share."""

from typing import Any

from pydantic import BaseModel

from search.early_stopping import Release, Verdict


class Grounds(BaseModel):
    """`value` was compared with `cutoff`, which was taken from `compared_count` trials at the `milestone`.

    `compared_with` has the numbers of up to ten of them, those nearest to the cutoff, best first.
    """

    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    compared_with: list[int]
    reason: str


_FIELDS = tuple(name for name in Grounds.model_fields if name != "compared_with")


def grounds_of(said: Verdict | Release) -> dict[str, Any]:
    """The fields of `Grounds`, as they are stored. Not validated, because every report that is judged needs them."""
    return {**{name: getattr(said, name) for name in _FIELDS}, "compared_with": list(said.compared_with)}
