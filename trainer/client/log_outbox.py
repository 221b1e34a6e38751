"""The queue of the output of an attempt's ranks, sent in order."""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from trainer.client.errors import CallRefused, LeaseLost, ServiceDiskFull, ServiceUnreachable
from trainer.client.filter_detector import FilterDetector
from trainer.client.http import ServiceClient
from trainer.client.outbox import Batch, Outbox

logger = logging.getLogger("paceline")

TEXT_PER_CALL = 200_000
"""In characters, as QUEUED_TEXT."""

QUEUED_TEXT = 2_000_000
"""A rank that has more to send waits until this much is queued. Its output stays in its file meanwhile."""

MARK_SECONDS = 3.0
"""How long the service may take to note in a log that output is missing."""

FILTERED_SECONDS = 30.0
"""How long a call with output gets foreign answers until the call is tried without its text."""

FULL_DISK_SECONDS = 5.0
"""How long output is kept for a service that has no room for it. Then it is dropped, so that the trial can end."""


class LogOutbox(Outbox):
    """Delivers the output of all ranks, in order. While the service is away, it keeps what it has.

    Output is dropped only if the service refuses it, or has no room for it: `mark_missing` says so in the log.
    `on_room` is called when `has_room` becomes true.
    """

    def __init__(
        self,
        client: ServiceClient,
        trial: str,
        on_lease_lost: Callable[[], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("paceline-log-outbox", client, on_lease_lost)
        self._path = f"/v1/trials/{trial}/logs"
        self._chunks: deque[tuple[int, int, str]] = deque()
        self._queued_text = 0
        self._put: dict[int, int] = {}
        self._delivered: dict[int, int] = {}
        self._full_since: float | None = None
        self._on_room = on_room

    @property
    def has_room(self) -> bool:
        """Whether the ranks may send more. Nothing breaks if they do so without room."""
        return self._queued_text < QUEUED_TEXT or self._closed.is_set()

    def close(self) -> None:
        super().close()
        self._on_room()

    def put(self, rank: int, offset: int, text: str) -> None:
        """Queue the rank's output from `offset` on, which counts bytes."""
        with self._changed:
            self._queued_text += len(text)
            for start in range(0, len(text), TEXT_PER_CALL):
                piece = text[start : start + TEXT_PER_CALL]
                self._chunks.append((rank, offset, piece))
                offset += len(piece.encode())
            self._put[rank] = offset
            self._changed.notify_all()

    def mark_missing(self, client: ServiceClient) -> None:
        """Have the service note the end of each rank's output that it did not get. To be called after `close()`.

        `client` is another one than the outbox's own, which may be in use. A service that does not answer, or
        for which the lease is lost, is not called again.
        """
        for rank, end in self._put.items():
            if self._delivered.get(rank, 0) < end:
                try:
                    client.post(self._path, {"rank": rank, "offset": end, "text": ""}, read_seconds=MARK_SECONDS)
                except (CallRefused, ServiceUnreachable) as error:
                    what = "the end of the log of rank %d, and the note that it is missing, were not delivered: %s"
                    logger.warning(what, rank, error)
                    if isinstance(error, LeaseLost | ServiceUnreachable):
                        return

    def _has_queued(self) -> bool:
        return bool(self._chunks)

    def _pop(self) -> Batch:
        rank, offset, text = self._chunks.popleft()
        while self._chunks and self._continues(rank, offset, text):
            text += self._chunks.popleft()[2]
        self._take_from_queue(len(text))
        return self._path, {"rank": rank, "offset": offset, "text": text}

    def _take_from_queue(self, size: int) -> None:
        had_room = self.has_room
        self._queued_text -= size
        if self.has_room and not had_room:
            self._on_room()

    def _continues(self, rank: int, offset: int, text: str) -> bool:
        next_rank, next_offset, next_text = self._chunks[0]
        adjoins = next_rank == rank and next_offset == offset + len(text.encode())
        return adjoins and len(text) + len(next_text) <= TEXT_PER_CALL

    def _on_answer(self, body: dict[str, Any], answer: dict[str, Any]) -> None:  # noqa: ARG002
        self._full_since = None
        self._delivered[body["rank"]] = body["offset"] + len(body["text"].encode())

    def _gives_up(self, error: ServiceUnreachable) -> bool:
        if not isinstance(error, ServiceDiskFull):
            return False
        self._full_since = self._full_since or time.monotonic()
        is_over = time.monotonic() - self._full_since > FULL_DISK_SECONDS
        if is_over:
            with self._changed:
                self._chunks.clear()
                self._take_from_queue(self._queued_text)
        return is_over

    def _filter_detector(self, body: dict[str, Any]) -> FilterDetector:
        without_text = partial(self._is_answered_without_text, body["rank"], body["offset"])
        return FilterDetector(FILTERED_SECONDS, without_text)

    def _leaves_out(self, body: dict[str, Any], error: ServiceUnreachable) -> bool:  # noqa: ARG002
        """The log then says that this output is missing. Otherwise the trial could not end."""
        rank, offset, size = body["rank"], body["offset"], len(body["text"].encode())
        if not self._is_answered_without_text(rank, offset + size):
            return False
        self._delivered[rank] = offset + size
        what = "%d bytes of the log of rank %d are left out: a proxy answers calls that contain them"
        logger.warning(what, size, rank)
        return True

    def _is_answered_without_text(self, rank: int, offset: int) -> bool:
        """The service notes that output is missing up to `offset`."""
        try:
            self._client.post(self._path, {"rank": rank, "offset": offset, "text": ""})
        except (CallRefused, ServiceUnreachable):
            return False
        return True
