"""Whether trials fail in the same way, so that the whole experiment fails."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from service.domain.retry_policy import never_started
from trainer.wire import Failure, FailureKind

FAILURES_TO_GIVE_UP: dict[FailureKind, int] = {
    FailureKind.LOST: 3,
    FailureKind.CANNOT_START: 3,
    FailureKind.USER_ERROR: 5,
    FailureKind.SILENT: 5,
}
"""How many trials that are the first to fail in one of these ways must fail alike, with no trial that fared better, to
fail the experiment: its code is wrong. Of lost trials, only those count whose workers never ran."""


@dataclass(frozen=True)
class RepeatedFailure:
    """The first `count` failed trials failed in the same way as the very first one."""

    first: Failure
    count: int

    @property
    def is_conclusive(self) -> bool:
        """Whether `count` reaches the limit of FAILURES_TO_GIVE_UP."""
        return self.count >= FAILURES_TO_GIVE_UP.get(self.first.kind, sys.maxsize)


_OF_COMMAND = re.compile(r"the command ended with [^:]+:")
"""Before the command's arguments, among which are the trial's params."""

_VARYING = re.compile(r"""(\.py:\d+)|(?<!\w)'[^']*'(?!\w)|"[^"]*"|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?""")
"""Numbers and quoted texts, which may be the trial's params or the rank; but not the line of a file."""


def repeated_failure(failures: Sequence[Failure]) -> RepeatedFailure | None:
    """`failures` are those of the first failed trials, oldest first. Neither the rank nor params make a difference."""
    if not failures:
        return None
    same = takewhile(lambda failure: _signature(failure) == _signature(failures[0]), failures)
    return RepeatedFailure(failures[0], sum(1 for _ in same))


def _signature(failure: Failure) -> tuple[FailureKind, str]:
    """What two equal failures share. Ray's message for workers that never ran names processes, so it is left out."""
    if never_started(failure):
        return failure.kind, ""
    if of_command := _OF_COMMAND.match(failure.message):
        return failure.kind, of_command[0]
    return failure.kind, _VARYING.sub(lambda found: found[1] or "#", failure.message)
