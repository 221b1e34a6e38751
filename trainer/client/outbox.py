"""Reports and logs on their way to the service: in order, kept while it is away, never twice."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from trainer.client.http import CallRefused, LeaseLost, ServiceClient, ServiceFailed, ServiceUnreachable, pauses

logger = logging.getLogger("paceline")

REPORTS_IN_A_CALL = 100
TEXT_IN_A_CALL = 200_000
TEXT_KEPT = 50_000_000

Batch = tuple[str, dict[str, Any]]


class Outbox(threading.Thread):
    """Sends what is put in, in order. Subclasses say what the next call is and what its answer means.

    While the service is away it keeps trying; a call that is refused is dropped, and a lost lease, or an error that is
    nobody's answer, ends it all.
    """

    def __init__(self, name: str, service: ServiceClient, on_lease_lost: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._service = service
        self._on_lease_lost = on_lease_lost
        self._news = threading.Condition()
        self._over = threading.Event()
        self._sending = False

    def run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._send(*batch)
                with self._news:
                    self._sending = False
                    self._news.notify_all()
        except Exception as error:
            logger.exception("%s can't go on", self.name)
            self.close()
            self._broken(error)

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all is delivered, or it is over. False if `seconds` were not enough."""
        with self._news:
            return self._news.wait_for(lambda: self._over.is_set() or not (self._sending or self._waiting()), seconds)

    def close(self) -> None:
        """Give up what is not delivered yet."""
        self._over.set()
        with self._news:
            self._news.notify_all()

    def _next(self) -> Batch | None:
        with self._news:
            self._news.wait_for(lambda: self._over.is_set() or self._waiting())
            if self._over.is_set():
                return None
            self._sending = True
            return self._take()

    def _send(self, path: str, body: dict[str, Any]) -> None:
        for pause in pauses():
            try:
                self._answered(body, self._service.post(path, body) or {})
            except ServiceUnreachable as error:
                logger.debug("%s: %s", self.name, error)
                if not self._over.wait(pause):
                    continue
            except LeaseLost:
                self.close()
                self._on_lease_lost()
            except CallRefused as refused:
                self._refused(body, refused)
            return

    def _waiting(self) -> bool:
        raise NotImplementedError

    def _take(self) -> Batch:
        raise NotImplementedError

    def _answered(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        raise NotImplementedError

    def _refused(self, body: dict[str, Any], refused: CallRefused) -> None:
        logger.error("%s: the service refuses %.300s, going on without it: %s", self.name, body, refused)

    def _broken(self, error: Exception) -> None:
        """Nothing more will be delivered."""


class ReportOutbox(Outbox):
    """`on_decision(sequence, decision, reason)` is called from this thread for each answered report.

    `on_refused(error)` is called when a report cannot be delivered, `on_known(checkpoint)` when the service has taken a
    checkpoint.
    """

    def __init__(
        self,
        service: ServiceClient,
        trial: str,
        on_decision: Callable[[int, str, str | None], None],
        on_lease_lost: Callable[[], None],
        on_refused: Callable[[Exception], None],
        on_known: Callable[[str], None],
    ) -> None:
        super().__init__("paceline-reports", service, on_lease_lost)
        self._on_refused = on_refused
        self._on_known = on_known
        self._path = f"/v1/trials/{trial}/reports"
        self._on_decision = on_decision
        self._reports: deque[dict[str, Any]] = deque()
        self._metrics: dict[int, dict[str, Any]] = {}
        self._checkpoints: set[int] = set()

    def put(self, sequence: int, metrics: dict[str, Any], checkpoint: str | None) -> None:
        with self._news:
            self._metrics[sequence] = metrics
            if checkpoint is not None:
                self._checkpoints.add(sequence)
            self._append(sequence, metrics, checkpoint)

    def add_checkpoint(self, sequence: int, checkpoint: str) -> None:
        """Send the report again with its checkpoint, unless the service has been told of it already."""
        with self._news:
            if sequence not in self._checkpoints and sequence in self._metrics:
                self._checkpoints.add(sequence)
                self._append(sequence, self._metrics[sequence], checkpoint)

    def _append(self, sequence: int, metrics: dict[str, Any], checkpoint: str | None) -> None:
        report = {"sequence": sequence, "metrics": metrics}
        self._reports.append(report if checkpoint is None else {**report, "checkpoint": checkpoint})
        self._news.notify_all()

    def _waiting(self) -> bool:
        return bool(self._reports)

    def _take(self) -> Batch:
        count = min(len(self._reports), REPORTS_IN_A_CALL)
        return self._path, {"reports": [self._reports.popleft() for _ in range(count)]}

    def _answered(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        for report in body["reports"]:
            self._on_decision(report["sequence"], answer.get("decision", "continue"), answer.get("reason"))
            if "checkpoint" in report:
                self._on_known(report["checkpoint"])

    def _refused(self, body: dict[str, Any], refused: CallRefused) -> None:
        if len(body["reports"]) > 1 and not isinstance(refused, ServiceFailed):
            # One bad report must not take the others with it.
            for report in body["reports"]:
                self._send(self._path, {"reports": [report]})
            return
        super()._refused(body, refused)
        self._on_refused(refused)

    def _broken(self, error: Exception) -> None:
        self._on_refused(error)


class LogOutbox(Outbox):
    def __init__(self, service: ServiceClient, trial: str, on_lease_lost: Callable[[], None]) -> None:
        super().__init__("paceline-log-outbox", service, on_lease_lost)
        self._path = f"/v1/trials/{trial}/logs"
        self._chunks: deque[tuple[int, int, str]] = deque()
        self._kept = 0

    def put(self, rank: int, offset: int, text: str) -> None:
        with self._news:
            if self._kept + len(text) > TEXT_KEPT:
                return  # the service has been away for long; Ray's own log files have it all
            self._kept += len(text)
            for start in range(0, len(text), TEXT_IN_A_CALL):
                piece = text[start : start + TEXT_IN_A_CALL]
                self._chunks.append((rank, offset, piece))
                offset += len(piece.encode())
            self._news.notify_all()

    def _waiting(self) -> bool:
        return bool(self._chunks)

    def _take(self) -> Batch:
        rank, offset, text = self._chunks.popleft()
        while self._chunks and self._continues(rank, offset, text):
            text += self._chunks.popleft()[2]
        self._kept -= len(text)
        return self._path, {"rank": rank, "offset": offset, "text": text}

    def _continues(self, rank: int, offset: int, text: str) -> bool:
        next_rank, next_offset, next_text = self._chunks[0]
        adjoins = next_rank == rank and next_offset == offset + len(text.encode())
        return adjoins and len(text) + len(next_text) <= TEXT_IN_A_CALL

    def _answered(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        pass
