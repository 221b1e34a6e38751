"""Queues of what the service is to get: delivered in order, and kept while the service is away."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from trainer.client.errors import CallRefused, LeaseLost, ServiceFailed, ServiceUnreachable
from trainer.client.filter_detector import FilterDetector, has_answer_to_heartbeat
from trainer.client.http import RepetitionLog, ServiceClient, backoff_delays
from trainer.client.listener import ReportAnswered, ServiceListener
from trainer.process_log.context import log_context

logger = logging.getLogger("paceline")

REPORTS_PER_CALL = 100
REMEMBERED = 10_000
"""So many of the last reports may still get a checkpoint, which is saved in the background."""

FILTERED_SECONDS = 300.0
"""How long a call with reports gets foreign answers, while heartbeats get through, until the attempt is ended."""

Batch = tuple[str, dict[str, Any]]


class Outbox(threading.Thread):
    """Sends what is put in, in order. Subclasses define the next call and what its answer means.

    It repeats a call while the service is away, and drops a call that the service refuses. A lost lease ends it, as
    does an error of its own.
    """

    def __init__(self, name: str, client: ServiceClient, on_lease_lost: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._client = client
        self._on_lease_lost = on_lease_lost
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._sending = False
        self._repetitions = RepetitionLog()
        self._log_fields = log_context.current()

    def run(self) -> None:
        log_context.begin(**self._log_fields)
        try:
            while (batch := self._next()) is not None:
                with log_context.request():  # also what the answer causes
                    self._send(*batch)
                with self._changed:
                    self._sending = False
                    self._changed.notify_all()
        except Exception as error:
            logger.exception("%s fails", self.name)
            self.close()
            self._on_failure(error)

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until everything is delivered, or the outbox is closed. False after a timeout of `seconds`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closed.is_set() or not (self._sending or self._has_any()), seconds
            )

    def close(self) -> None:
        """Drop what is not delivered yet."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def _next(self) -> Batch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._has_queued())
            if self._closed.is_set():
                return None
            self._sending = True
            return self._pop()

    def _send(self, path: str, body: dict[str, Any]) -> None:
        detector = self._filter_detector(body)
        for delay in backoff_delays():
            try:
                self._on_answer(body, self._client.post(path, body) or {})
            except ServiceUnreachable as error:
                self._repetitions.add(self.name, error)
                is_filtered = detector.is_filtered(error) and self._leaves_out(body, error)
                if not is_filtered and not self._gives_up(error) and not self._closed.wait(delay):
                    continue
            except LeaseLost:
                self.close()
                self._on_lease_lost()
            except CallRefused as refused:
                self._on_refusal(body, refused)
            return

    def _has_any(self) -> bool:
        """Whether anything is not sent yet."""
        return self._has_queued()

    def _has_queued(self) -> bool:
        """Whether there is something to send now."""
        raise NotImplementedError

    def _pop(self) -> Batch:
        raise NotImplementedError

    def _on_answer(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        raise NotImplementedError

    def _on_refusal(self, body: dict[str, Any], refused: CallRefused) -> None:
        logger.error("%s: the service refused a message, which is dropped: %s: %.300s", self.name, refused, body)

    def _on_failure(self, error: Exception) -> None:
        """The outbox has failed: nothing more will be delivered."""

    def _gives_up(self, error: ServiceUnreachable) -> bool:  # noqa: ARG002
        """Whether to drop the call, instead of repeating it until the service answers."""
        return False

    def _filter_detector(self, body: dict[str, Any]) -> FilterDetector:
        raise NotImplementedError

    def _leaves_out(self, body: dict[str, Any], error: ServiceUnreachable) -> bool:
        """A filter answers the call itself. Returns whether the service now knows that it does not come."""
        raise NotImplementedError


class SavedCheckpoint(NamedTuple):
    """A checkpoint on the storage, and its bytes, None if they are not known."""

    uri: str
    size: int | None = None


class ReportOutbox(Outbox):
    """The reports of one attempt, and which checkpoint belongs to each. `listener` gets what the service answers.

    `world_size`: of an elastic group. A report that is held, and those after it, wait until it is released.
    """

    def __init__(self, client: ServiceClient, trial: str, listener: ServiceListener) -> None:
        super().__init__("paceline-reports", client, listener.on_lease_lost)
        self._listener = listener
        self._trial = trial
        self._path = f"/v1/trials/{trial}/reports"
        self._reports: deque[dict[str, Any]] = deque()
        self._put_count = 0
        self._without_checkpoint: dict[int, dict[str, Any]] = {}
        self._early_checkpoints: dict[int, SavedCheckpoint] = {}
        self._held: set[int] = set()
        self._drops_held = False
        self._has_lost_reports = False
        self.world_size: int | None = None

    def put(
        self, sequence: int, metrics: dict[str, Any], checkpoint: SavedCheckpoint | None, *, is_held: bool = False
    ) -> None:
        """Reports are put in the order of their sequences."""
        with self._changed:
            self._put_count = sequence + 1
            if is_held:
                self._held.add(sequence)
            early = self._early_checkpoints.pop(sequence, None)
            self._append(sequence, dict(metrics), checkpoint or early)

    def release(self, sequence: int, more: Mapping[str, Any]) -> None:
        """Send a report that was held, with more metrics. Nothing happens after `drop_held`."""
        with self._changed:
            if self._drops_held:
                return
            self._held.discard(sequence)
            for report in self._reports:
                if report["sequence"] == sequence:
                    report["metrics"].update(more)
            self._changed.notify_all()

    def drop_held(self) -> None:
        """Send neither the first report that is held, or comes to be, nor later ones: another attempt repeats them."""
        with self._changed:
            self._drops_held = True
            self._reports = deque(report for report in self._reports if not self._is_dropped(report["sequence"]))
            self._changed.notify_all()

    def _is_dropped(self, sequence: int) -> bool:
        return self._drops_held and any(held <= sequence for held in self._held)

    def add_checkpoint(self, sequence: int, checkpoint: SavedCheckpoint) -> None:
        """Send the report with its checkpoint: again, if it was sent without one. It may be put only later."""
        with self._changed:
            if sequence >= self._put_count:
                self._early_checkpoints[sequence] = checkpoint
            elif (metrics := self._without_checkpoint.pop(sequence, None)) is not None:
                self._append(sequence, metrics, checkpoint)

    def _append(self, sequence: int, metrics: dict[str, Any], checkpoint: SavedCheckpoint | None) -> None:
        if self._has_lost_reports or self._is_dropped(sequence):
            return
        report: dict[str, Any] = {"sequence": sequence, "metrics": metrics}
        if checkpoint is None:
            self._without_checkpoint[sequence] = metrics
        else:
            report["checkpoint"] = checkpoint.uri
            if checkpoint.size is not None:
                report["checkpoint_bytes"] = checkpoint.size
        self._without_checkpoint.pop(sequence - REMEMBERED, None)
        self._reports.append(report)
        self._changed.notify_all()

    def _has_any(self) -> bool:
        return bool(self._reports)

    def _has_queued(self) -> bool:
        return self._sendable_count() > 0

    def _sendable_count(self) -> int:
        held = (index for index, report in enumerate(self._reports) if report["sequence"] in self._held)
        return min(next(held, len(self._reports)), REPORTS_PER_CALL)

    def _pop(self) -> Batch:
        count = self._sendable_count()
        size = {} if self.world_size is None else {"world_size": self.world_size}
        return self._path, {"reports": [self._reports.popleft() for _ in range(count)], **size}

    def _on_answer(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        for report in body["reports"]:
            answered = ReportAnswered(
                report["sequence"],
                answer["decision"],
                answer["reason"],
                answer.get("deciding_sequence"),
                report.get("checkpoint"),
                answer.get("kept", ()),
            )
            self._listener.on_report_answered(answered)

    def _on_refusal(self, body: dict[str, Any], refused: CallRefused) -> None:
        if len(body["reports"]) > 1 and not isinstance(refused, ServiceFailed):
            # One bad report must not cost the others.
            for report in body["reports"]:
                if not (self._has_lost_reports or self._closed.is_set()):
                    self._send(self._path, {**body, "reports": [report]})
            return
        super()._on_refusal(body, refused)
        if isinstance(refused, ServiceFailed):
            self._drop_all()
        self._listener.on_report_lost(refused)

    def _filter_detector(self, body: dict[str, Any]) -> FilterDetector:  # noqa: ARG002
        return FilterDetector(FILTERED_SECONDS, partial(has_answer_to_heartbeat, self._client, self._trial))

    def _leaves_out(self, body: dict[str, Any], error: ServiceUnreachable) -> bool:  # noqa: ARG002
        """It ends the attempt, which would otherwise hold its GPUs for as long as the filter is there."""
        self._drop_all()
        self._listener.on_report_lost(error)
        return True

    def _drop_all(self) -> None:
        """Send nothing more: after a later checkpoint, the next attempt would not repeat the lost reports."""
        with self._changed:
            self._has_lost_reports = True
            self._reports.clear()

    def _on_failure(self, error: Exception) -> None:
        self._listener.on_report_lost(error)
