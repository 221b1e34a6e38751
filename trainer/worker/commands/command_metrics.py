"""Where a command's metrics come from: lines of its standard output, a file with JSON lines, and HTTP calls.

Each source runs in threads of its own and hands over its metrics by `put`, which blocks while too many wait.
"""

import contextlib
import hmac
import json
import os
import re
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, BinaryIO

from trainer.worker.commands.disk_errors import naming_disk_errors
from trainer.worker.commands.line_search import LineSearch
from trainer.worker.commands.snapshot import Line, Snapshot

POLL_SECONDS = 0.1
CHUNK_BYTES = 65_536
QUIET_SECONDS = 0.05
"""A command that has written nothing for so long after a line has not yet begun to save its next state."""
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True)
class CommandReport:
    """One report of the command. `decision`, if the command waits for it, gets `continue` or `stop`.

    Without one, `line` is the line with the metrics, if a state may belong to it, and `snapshot` that state.
    """

    metrics: dict[str, Any]
    decision: Future[str] | None = None
    line: Line | None = None
    snapshot: Snapshot | None = None


Put = Callable[[CommandReport], None]
Fail = Callable[[Exception], None]
"""Gets the error that ends a source: nothing that the command reports by it is read any more."""


@dataclass
class StdoutReader:
    """Copies the command's standard output, a pipe or FIFO, to the worker's, and finds metrics in its lines.

    `warn` is called once for lines that are too long.
    """

    stream: IO[bytes]
    patterns: Sequence[re.Pattern[str]]
    put: Put
    warn: Callable[[str], None]
    fail: Fail
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._search = LineSearch(self.patterns, self.warn)
        self._first_written_ns = self._written_ns()

    def start(self) -> None:
        self._thread = _reading(self._read, self.fail, "command-stdout")
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end of the output, when the command has ended."""
        self._thread.join()

    def _read(self) -> None:
        is_behind = self._has_more()
        while chunk := os.read(self.stream.fileno(), CHUNK_BYTES):
            with contextlib.suppress(OSError):
                os.write(1, chunk)
            *ends, begun = chunk.split(b"\n")
            found = [self._search.end(output) for output in ends]
            self._search.add(begun)
            self._report(found, is_behind=is_behind, is_all=not begun)
            is_behind = self._has_more()
        self._report([self._search.end(b"")], is_behind=False, is_all=True)

    def _report(self, found: Sequence[dict[str, Any]], *, is_behind: bool, is_all: bool) -> None:
        """`is_all`: the command has begun no further line. `is_behind`: the output has waited to be read."""
        reports = [CommandReport(metrics) for metrics in found if metrics]
        is_last = is_all and bool(found and found[-1])
        if reports and (is_last or not is_behind):
            reports[-1] = replace(reports[-1], line=self._line(is_last=is_last))
        for report in reports:
            self.put(report)

    def _line(self, *, is_last: bool) -> Line | None:
        """When what was read was written; None if the command has written more since."""
        written = self._written_ns()
        if self._has_more():
            return None
        if written == self._first_written_ns:  # the file system keeps no times of a FIFO
            return Line(time.time_ns(), is_certain=False, is_quiet=self._is_quiet)
        return Line(written, is_certain=is_last, is_quiet=self._is_quiet)

    def _written_ns(self) -> int:
        return os.fstat(self.stream.fileno()).st_mtime_ns

    def _is_quiet(self) -> bool:
        return self.stream.closed or not self._has_more(QUIET_SECONDS)

    def _has_more(self, seconds: float = 0) -> bool:
        poll = select.poll()
        poll.register(self.stream, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(seconds * 1000))


MAX_JSON_LINE_BYTES = 1_000_000
"""The longest line of the metrics file; of a longer one, or one that never ends, no more is held in memory."""

BATCH_BYTES = 65_536
"""How much of the metrics file is read before its reports are handed over; at least one line."""

KNOWN_BYTES = 100
"""How many bytes before the next line show whether the metrics file is the one that was read."""


@dataclass
class JsonLinesReader:
    """Follows a file to which the command appends JSON objects, one per line. `warn` gets what is wrong with a line.

    A command that begins the file anew may repeat the lines that it has written before: they are not reported again.
    Lines that are there when the reader is made are an earlier attempt's, and are skipped: make it before the command
    starts.
    """

    path: Path
    put: Put
    warn: Callable[[str], None]
    fail: Fail
    _ended: threading.Event = field(default_factory=threading.Event)
    _is_abandoned: threading.Event = field(default_factory=threading.Event)
    _has_warned: bool = False
    _thread: threading.Thread = field(init=False)
    _offset: int = 0
    _before: bytes = b""
    _lines: list[int] = field(default_factory=list)
    _number: int = 0
    _is_in_long_line: bool = False

    def __post_init__(self) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), self.path.open("rb") as file:
            self._offset = file.seek(0, os.SEEK_END)
            file.seek(max(0, self._offset - KNOWN_BYTES))
            self._before = file.read()

    def start(self) -> None:
        self._thread = _reading(self._follow, self.fail, "command-metrics-file")
        self._thread.start()

    def finish(self) -> None:
        """Read the rest, when the command has ended."""
        self._ended.set()
        self._thread.join()

    def abandon(self) -> None:
        """Read no further: no report counts any more."""
        self._is_abandoned.set()

    @naming_disk_errors("the command's metrics file cannot be read")
    def _follow(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self._read_on(is_last=False)
        self._read_on(is_last=True)

    def _read_on(self, *, is_last: bool) -> None:
        """Read to the end of the file, in batches: the command may write faster than its reports are handed over."""
        while not self._is_abandoned.is_set() and (reports := self._next_batch(is_last=is_last)) is not None:
            for report in reports:
                self.put(report)

    def _next_batch(self, *, is_last: bool) -> list[CommandReport] | None:
        """Return the reports in the next lines; None if there are no such lines."""
        if (opened := self._open(is_last=is_last)) is None:
            return None
        with opened as file:
            if not self._goes_on(file):
                self._offset, self._before, self._number, self._is_in_long_line = 0, b"", 0, False
            start = file.seek(self._offset)
            found = [self._metrics_in(line) for line in self._new_lines(file, is_last=is_last)]
            reports = [CommandReport(metrics) for metrics in found if metrics is not None]
            if reports:
                reports[-1] = replace(reports[-1], line=self._line(file, is_last=found[-1] is not None))
            return reports if self._offset > start else None

    def _open(self, *, is_last: bool) -> BinaryIO | None:
        """None if it is not there, or cannot be opened yet."""
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_last:
                raise
            if not self._has_warned:
                self._has_warned = True
                self.warn(f"{self.path.name} cannot be opened yet: {error}")
            return None

    def _new_lines(self, file: BinaryIO, *, is_last: bool) -> Iterator[bytes]:
        end = self._offset + BATCH_BYTES
        while self._offset < end and (line := file.readline(MAX_JSON_LINE_BYTES + 1)):
            has_end, is_rest = line.endswith(b"\n"), self._is_in_long_line
            is_long = is_rest or (len(line) > MAX_JSON_LINE_BYTES and not has_end)
            if not (has_end or is_long or is_last):
                return  # it is still being written
            self._offset, self._before = self._offset + len(line), line[-KNOWN_BYTES:]
            self._is_in_long_line = is_long and not has_end
            if is_rest or not self._is_new(line):
                continue
            if is_long:
                self.warn(f"{self.path.name}: a line has more than {MAX_JSON_LINE_BYTES:,} bytes and is left out")
            else:
                yield line

    def _line(self, file: BinaryIO, *, is_last: bool) -> Line | None:
        """When what was read was written; None if the command has written more since."""
        status = os.fstat(file.fileno())
        if status.st_size != self._offset:
            return None
        return Line(status.st_mtime_ns, is_certain=is_last, is_quiet=self._is_quiet)

    def _is_quiet(self) -> bool:
        time.sleep(QUIET_SECONDS)
        with contextlib.suppress(FileNotFoundError):
            return self.path.stat().st_size == self._offset
        return False

    def _goes_on(self, file: BinaryIO) -> bool:
        """Whether the file has what was read last where it was; else the command has begun it anew."""
        file.seek(self._offset - len(self._before))
        return file.read(len(self._before)) == self._before

    def _is_new(self, line: bytes) -> bool:
        """Whether it is no repetition of the line that had this number before the file was begun anew."""
        number, self._number = self._number, self._number + 1
        if self._lines[number : number + 1] == [hash(line)]:
            return False
        self._lines[number:] = [hash(line)]
        return True

    def _metrics_in(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            metrics = json.loads(line)
        except (ValueError, RecursionError):
            metrics = None
        if isinstance(metrics, dict):
            return metrics
        shown = line[:200].decode(errors="replace")
        self.warn(f"{self.path.name}: a line is not a JSON object and is left out: {shown}")
        return None


def _reading(read: Callable[[], None], fail: Fail, name: str) -> threading.Thread:
    """Return the thread of a source, whose error is never lost."""

    def run() -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            fail(error)

    return threading.Thread(target=run, name=name)


class ReportServer(ThreadingHTTPServer):
    """Takes reports by HTTP from this machine: POST `{"metrics": {…}}`, answered with `{"decision": "continue"}`."""

    daemon_threads = False  # `server_close` waits for them

    def __init__(self, put: Put) -> None:
        super().__init__(("127.0.0.1", 0), _ReportHandler)
        self.put, self.token = put, secrets.token_urlsafe(24)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/report"
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), name="command-reports")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _ReportHandler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = 60

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._answer(401, {"detail": "send the header: Authorization: Bearer $PACELINE_LEASE"})
            return
        try:
            metrics = self._metrics()
        except (ValueError, RecursionError) as error:
            self._answer(422, {"detail": f'{error}; send {{"metrics": {{"loss": 0.5}}}}'})
            return
        decision: Future[str] = Future()
        self.server.put(CommandReport(metrics, decision))
        self._answer(200, {"decision": decision.result()})

    def _metrics(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= MAX_BODY_BYTES:
            raise ValueError(f"the body must have 1 to {MAX_BODY_BYTES} bytes, and a Content-Length")
        body = json.loads(self.rfile.read(size))
        if not isinstance(body, dict) or not isinstance(body.get("metrics"), dict):
            raise ValueError("the body has no object `metrics`")  # noqa: TRY004 - for the caller it is a bad value
        return dict(body["metrics"])

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """The standard error is the command's."""
