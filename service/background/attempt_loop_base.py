"""What the loops share that end attempts, and stop trials and experiments."""

from collections.abc import Callable
from functools import partial

from service.background.lease_extension import LeaseExtension
from service.background.loop import PartlyFailed
from service.operations.attempts.reachability import Reachability
from service.runtime.collected_errors import sum_of_all
from service.runtime.context import Context
from service.store.sql.database import cannot_write


class SomeFailed(ExceptionGroup[Exception], PartlyFailed):
    """Some attempts, experiments or agents failed. The loop keeps its pace, so that the others do not wait."""


class AttemptLoopBase:
    """Acts on the silence of a holder only if that could reach the service, which another loop watches."""

    every = 1.0
    is_behind = False

    def __init__(self, context: Context, extension: LeaseExtension) -> None:
        self._context = context
        self._extension = extension

    def _do(self, *steps: Callable[[Context, Reachability], int]) -> int:
        """Do all steps, even if some fail; return the sum of what they changed. Raises SomeFailed."""
        reachability = self._extension.reachability()
        try:
            return sum_of_all(partial(step, self._context, reachability) for step in steps)
        except ExceptionGroup as errors:
            if errors.subgroup(cannot_write):  # neither can what holders send be stored
                self._extension.doubt()
            raise SomeFailed(errors.message, errors.exceptions) from None
