"""The barrier of a report: all ranks wait, and all of them get the same answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.decisions import CONTINUE, STOP
from trainer.worker.messages import RankReport

ANSWER_SECONDS = 5.0
"""How long training waits for the service's decision on a report before it continues without one.

After one report without a decision it does not wait again until the service has answered.
"""

Deliver = Callable[[int, dict[str, Any], str | None], None]


@dataclass
class PendingReport:
    """One report: the ranks that have made it, and the answer for all of them."""

    sequence: int
    answer: asyncio.Future[str]
    arrived: set[int] = field(default_factory=set)
    metrics: dict[str, Any] | None = None
    checkpoint: str | None = None
    is_delivered: bool = False


@dataclass(frozen=True)
class Leaving:
    """At which report the ranks leave: at the one with the sequence `at`, or `when_saved` at one that saves before.

    By default they do not leave.
    """

    at: int | None = None
    when_saved: bool = False

    @property
    def is_now(self) -> bool:
        """Whether they leave at every report."""
        return self.at == 0

    def is_due(self, pending: PendingReport) -> bool:
        is_last = self.at is not None and pending.sequence >= self.at
        return is_last or (self.when_saved and pending.checkpoint is not None)


class ReportBarrier:
    """Belongs to one event loop; every method is called there. A rank makes one report after the other.

    A rank's report may be repeated: it counts once, and gets the same answer. Repetitions after the rank's next report
    change nothing, and get any answer.

    `deliver(sequence, metrics, checkpoint)` gets each report once, in order, when rank 0 has made it and, if it has a
    checkpoint, all ranks have saved. `on_complete()` is called when all ranks have made it. `undecided` are the
    reports after which training continued without a decision: those of which `is_held(sequence)`, too, because the
    service gets them later. `made` is how many reports each rank has made.
    """

    def __init__(
        self,
        deliver: Deliver,
        on_complete: Callable[[], None],
        is_held: Callable[[int], bool] = lambda _sequence: False,
        *,
        wait_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._deliver = deliver
        self._on_complete = on_complete
        self._is_held = is_held
        self._wait_seconds = wait_seconds
        self._pending: dict[int, PendingReport] = {}
        self._service_is_silent = False
        self._leaving = Leaving()
        self._left_at: int | None = None
        self._newest_saved = -1
        self.undecided: set[int] = set()
        self.made: dict[int, int] = {}

    def has(self, report: RankReport) -> bool:
        """Whether the rank has made this report already."""
        return report.sequence < self.made.get(report.rank, 0)

    async def report(self, report: RankReport) -> str:
        """One rank's report; returns the answer that all ranks get for it."""
        if self.has(report):
            repeated = self._pending.get(report.sequence)
            return CONTINUE if repeated is None else await asyncio.shield(repeated.answer)
        return await asyncio.shield(self._add(report).answer)

    def _add(self, report: RankReport) -> PendingReport:
        sequence = report.sequence
        pending = self._pending.setdefault(
            sequence, PendingReport(sequence, asyncio.get_running_loop().create_future())
        )
        pending.arrived.add(report.rank)
        self.made[report.rank] = sequence + 1
        pending.metrics = report.metrics if report.rank == 0 else pending.metrics
        pending.checkpoint = pending.checkpoint or report.checkpoint
        is_complete = len(pending.arrived) == report.world_size
        if not pending.is_delivered and pending.metrics is not None and (is_complete or pending.checkpoint is None):
            self._send(pending)
        if is_complete:
            self._on_complete()
            self._pending.pop(sequence - 1, None)
        return pending

    def decide(self, sequence: int, decision: str) -> None:
        """The service's decision on a report. One that comes too late is the answer to the next report."""
        self._service_is_silent = False
        pending = self._pending.get(sequence)
        if decision != CONTINUE:
            self.leave()
        elif pending is not None:
            self._resolve(pending, decision)

    def leave(self) -> None:
        """Answer stop to every unanswered report, and to all that follow."""
        self._leaving = replace(self._leaving, at=0)
        for sequence in sorted(self._pending):
            self._resolve(self._pending[sequence], STOP)

    def leave_when_saved(self) -> None:
        """Leave at the first report that has saved a checkpoint, so that nothing has to be trained again."""
        self._leaving = replace(self._leaving, when_saved=True)

    async def leave_soon_after(self, event: Awaitable[object]) -> None:
        try:
            await event
        finally:
            self.leave_soon()

    def leave_soon(self) -> None:
        """Leave at the first report that has saved a checkpoint, or else at the second one from now on.

        Between the two the function may save because of what it has been told (`ray.train.get_preemption_info`).
        """
        if any(pending.checkpoint is not None and not pending.answer.done() for pending in self._pending.values()):
            self.leave()
        self.leave_when_saved()
        if self._leaving.at is None:
            self._leaving = replace(self._leaving, at=self.made.get(0, 0) + 1)

    def saved(self, sequence: int) -> None:
        """All ranks have saved the checkpoint of this report. It may come long after the report, and again."""
        if sequence <= self._newest_saved:
            return
        self._newest_saved = sequence
        is_late = sequence not in self._pending or self._pending[sequence].checkpoint is None
        if self._leaving.when_saved and is_late:
            self.leave()

    def _send(self, pending: PendingReport) -> None:
        pending.is_delivered = True
        if self._leaving.is_due(pending):
            # The order to leave came before this report. The report still counts; the function leaves with it.
            self._leaving = replace(self._leaving, at=0)
            self._resolve(pending, STOP)
        if self._left_at is None or pending.sequence <= self._left_at:
            self._deliver(pending.sequence, pending.metrics or {}, pending.checkpoint)
        patience = 0 if self._service_is_silent or self._is_held(pending.sequence) else self._wait_seconds
        asyncio.get_running_loop().call_later(patience, self._continue_without_decision, pending)

    def _continue_without_decision(self, pending: PendingReport) -> None:
        if not pending.answer.done():
            self._service_is_silent = True
            self.undecided.add(pending.sequence)
            self._resolve(pending, CONTINUE)

    def _resolve(self, pending: PendingReport, decision: str) -> None:
        if pending.answer.done():
            return
        pending.answer.set_result(STOP if self._leaving.is_now else decision)
        if self._leaving.is_now and self._left_at is None:
            self._left_at = pending.sequence
