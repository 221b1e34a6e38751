"""What an early-stopping decision is based on, as JSON."""

from pydantic import BaseModel


class Grounds(BaseModel):
    """`value` was compared with `cutoff`, which was taken from `compared_count` trials at the `milestone`.

    `compared_with` has the numbers of up to ten of them, those nearest to the cutoff, best first. The fields are those
    of `search.early_stopping.decision.Grounds`.
    """

    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    compared_with: list[int]
    reason: str
