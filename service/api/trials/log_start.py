"""Where a tail of a log begins, as a header of its answer says it and a later call repeats it."""

from collections.abc import Mapping
from typing import NamedTuple, Self

START_HEADER = "Paceline-Log-Start"
MAX_START_LENGTH = 4000
"""A longer header is left out: proxies limit headers and URLs to 8 kB or more."""
START_PATTERN = r"^[0-9]{1,6}/([0-9]{1,6}:[0-9]{1,15}(,[0-9]{1,6}:[0-9]{1,15})*)?$"


class LogStart(NamedTuple):
    """Where a tail begins: `2/0:4,1:0` in the log of attempt 2, after 4 bytes of rank 0 and none of rank 1.

    The attempt is `NO_ATTEMPT` where the trial had none.
    """

    attempt: int
    offsets: Mapping[int, int]

    @classmethod
    def parsed(cls, given: str) -> Self:
        attempt, _, places = given.partition("/")
        pairs = (one.split(":") for one in places.split(",") if one)
        return cls(int(attempt), {int(rank): int(offset) for rank, offset in pairs})

    def __str__(self) -> str:
        return f"{self.attempt}/{','.join(f'{rank}:{offset}' for rank, offset in self.offsets.items())}"
