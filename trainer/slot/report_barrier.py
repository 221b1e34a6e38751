"""One answer for all ranks to each report of an attempt."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CONTINUE, STOP = "continue", "stop"

# For how long training waits for the service's decision on a report before it goes on without. After it has waited in
# vain it does not wait again until the service has answered something.
ANSWER_SECONDS = 5.0

Deliver = Callable[[int, dict[str, Any], str | None], None]


@dataclass
class PendingReport:
    """One report: who has made it, and the answer all of them get."""

    sequence: int
    answer: asyncio.Future[str]
    arrived: set[int] = field(default_factory=set)
    metrics: dict[str, Any] | None = None
    checkpoint: str | None = None
    sent: bool = False


class ReportBarrier:
    """Lives in one event loop; every method is called there.

    `deliver(sequence, metrics, checkpoint)` gets each report once, in order, when rank 0 has made it and every rank
    that saves has saved. `complete(sequence)` is called when all ranks have made it.
    """

    def __init__(self, deliver: Deliver, complete: Callable[[int], None], wait_seconds: float = ANSWER_SECONDS) -> None:
        self._deliver = deliver
        self._complete = complete
        self._wait_seconds = wait_seconds
        self._rounds: dict[int, PendingReport] = {}
        self._unanswered = False
        self.leaving = False
        self._left_at: int | None = None

    async def answer(
        self, sequence: int, rank: int, world_size: int, metrics: dict[str, Any] | None, checkpoint: str | None
    ) -> str:
        """One rank's report; returns what all ranks of this report are told."""
        found = self._rounds.setdefault(sequence, PendingReport(sequence, asyncio.get_running_loop().create_future()))
        found.arrived.add(rank)
        found.metrics = metrics if rank == 0 else found.metrics
        found.checkpoint = found.checkpoint or checkpoint
        everyone = len(found.arrived) == world_size
        if not found.sent and found.metrics is not None and (everyone or found.checkpoint is None):
            self._send(found)
        if everyone:
            self._complete(sequence)
            self._rounds.pop(sequence - 1, None)
        return await asyncio.shield(found.answer)

    def decide(self, sequence: int, decision: str) -> None:
        """The service's decision on a report. One that comes too late is for the next report."""
        self._unanswered = False
        found = self._rounds.get(sequence)
        if decision != CONTINUE:
            self.leave()
        elif found is not None:
            self._resolve(found, decision)

    def leave(self) -> None:
        """Answer stop to every report not yet answered, and to all that follow."""
        self.leaving = True
        for sequence in sorted(self._rounds):
            self._resolve(self._rounds[sequence], STOP)

    def _send(self, found: PendingReport) -> None:
        found.sent = True
        if self.leaving:
            # Told to leave before this report was made: it still counts, and the function leaves with it.
            self._resolve(found, STOP)
        if self._left_at is None or found.sequence <= self._left_at:
            self._deliver(found.sequence, found.metrics or {}, found.checkpoint)
        patience = 0 if self._unanswered else self._wait_seconds
        asyncio.get_running_loop().call_later(patience, self._go_on_without, found)

    def _go_on_without(self, found: PendingReport) -> None:
        if not found.answer.done():
            self._unanswered = True
            self._resolve(found, CONTINUE)

    def _resolve(self, found: PendingReport, decision: str) -> None:
        if found.answer.done():
            return
        found.answer.set_result(STOP if self.leaving else decision)
        if self.leaving and self._left_at is None:
            self._left_at = found.sequence
