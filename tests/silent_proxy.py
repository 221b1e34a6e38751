"""A TCP proxy before PostgreSQL that can lose its servers silently: its callers stay connected, without answers."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy.engine import make_url

from service.store.sql import deadline_connection
from tests.timeouts import PATIENCE_SECONDS, wait_until

Result = TypeVar("Result")

GOODBYE = b"X\x00\x00\x00\x04"
"""PostgreSQL's message to end a connection, which has no answer."""

LONG = 10_000.0
"""Seconds; longer than any deadline."""


class _Pair:
    """A connection of a caller (`near`), and the one to the server that it is passed on to."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.is_silent = False
        self.is_waited_for = False
        self.is_marked = False

    def lose_server(self) -> None:
        self.is_silent = True
        _shut(self.far)


class SilentProxy:
    """`url` leads to the database at `target`, through the proxy.

    `loses_servers`: also those of new connections. `lose_on`: a connection that sends this is silent from then on.
    `cut_on`: the caller of a connection that sends this sees it break before the answer.
    `cut_at_commit_of`: as `cut_on`, at the COMMIT of the transaction that has this. The server gets it.
    `silent_count`: the number of connections on which a caller has waited for an answer that did not come.
    """

    def __init__(self, target: str) -> None:
        address = make_url(target)
        self._path = str(Path(str(address.query["host"]), ".s.PGSQL.5432"))
        self._server = socket.create_server(("127.0.0.1", 0), backlog=100)
        port = self._server.getsockname()[1]
        self.url = address.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        self.loses_servers = False
        self.lose_on: bytes | None = None
        self.cut_at_commit_of: bytes | None = None
        self.cut_on: bytes | None = None
        self.silent_count = 0
        self._pairs: list[_Pair] = []

    @contextmanager
    def passing(self) -> Iterator["SilentProxy"]:
        accepting = threading.Thread(target=self._accept)
        accepting.start()
        try:
            yield self
        finally:
            self._server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            self._server.close()
            self.cut()

    def lose_all(self) -> int:
        """Lose the server of each connection that there is; return their number."""
        pairs = list(self._pairs)
        for pair in pairs:
            pair.lose_server()
        return len(pairs)

    def cut(self) -> None:
        for pair in list(self._pairs):
            _shut(pair.near)

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for an answer that does not come."""
        return any(pair.is_waited_for for pair in list(self._pairs))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._path)
                pair = _Pair(near, far)
                if self.loses_servers:
                    pair.lose_server()
                self._pairs.append(pair)
                threading.Thread(target=self._pass_on, args=(pair,), daemon=True).start()
                threading.Thread(target=self._answer, args=(pair,), daemon=True).start()

    def _pass_on(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while (data := pair.near.recv(65536)) not in {b"", GOODBYE}:
                self._look_for_marks(pair, data)
                if pair.is_silent:
                    self.silent_count += not pair.is_waited_for
                    pair.is_waited_for = True
                else:
                    pair.far.sendall(data)
        self._pairs.remove(pair)
        _shut(pair.far)
        pair.near.close()

    def _look_for_marks(self, pair: _Pair, data: bytes) -> None:
        if self.lose_on is not None and self.lose_on in data:
            self.lose_on = None
            pair.lose_server()
        if self.cut_on is not None and self.cut_on in data:
            self.cut_on = None
            _shut(pair.near)
        pair.is_marked |= self.cut_at_commit_of is not None and self.cut_at_commit_of in data
        if pair.is_marked and b"COMMIT" in data:
            self.cut_at_commit_of, pair.is_marked = None, False
            _shut(pair.near)

    def _answer(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.far.recv(65536):
                pair.near.sendall(data)
        if not pair.is_silent:
            _shut(pair.near)
        pair.far.close()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class Clock:
    """The clock of the deadlines, which a test sets forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def pass_deadlines(self) -> None:
        self._ahead += LONG


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadline_connection, "monotonic", clock)
    return clock


def until_noticed(proxy: SilentProxy, clock: Clock, condition: Callable[[], Result]) -> Result:
    """As `wait_until`, while deadlines pass whenever someone waits for an answer that does not come."""

    def look() -> Result:
        if proxy.is_waited_for:
            clock.pass_deadlines()
        return condition()

    try:
        return wait_until(look, PATIENCE_SECONDS)
    except BaseException:
        proxy.cut()  # what waits would not let the service stop
        raise
