"""Connections to PostgreSQL that notice when it is silent.

PostgreSQL's own timeouts end slow statements, and TCP's notice a peer whose kernel is gone. Neither notices a proxy
that has lost its server, or a server that is suspended: their kernels acknowledge what is sent, and no answer comes.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Engine, event

Result = TypeVar("Result")

PING_SECONDS = 5.0
"""For what needs no work: to set up a new connection, and to ask a pooled one whether it still answers."""

STATEMENT_SECONDS = 25.0
"""Longer than PostgreSQL's own `statement_timeout`, so that only silence lasts as long."""

LONG_STATEMENT_SECONDS = 3600.0
"""For a transaction without `statement_timeout`."""


class DeadlineConnection(psycopg.Connection[Any]):
    """Closes itself and raises OperationalError when the server is silent for longer than `max_silence` seconds.

    Without a limit if it is None. All answers of the server come through `wait`, except those while it connects.
    """

    max_silence: float | None = None

    def wait(self, gen: PQGen[Result], *arguments: Any, **options: Any) -> Result:
        if self.max_silence is not None:
            gen = self._limited(gen, self.max_silence)
        return super().wait(gen, *arguments, **options)

    def _limited(self, answer: PQGen[Result], seconds: float) -> Generator[Any, Any, Result]:
        """Wait as `answer` does. What is sent to it is false when nothing came for a tenth of a second."""
        try:
            wanted = next(answer)
            ends_at = monotonic() + seconds
            while True:
                ready = yield wanted
                if ready:
                    ends_at = monotonic() + seconds
                elif monotonic() > ends_at:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the connection is closed: no answer for {seconds:g} s")
                wanted = answer.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result


def use_deadlines(engine: Engine) -> None:
    """Give all connections of the engine deadlines: that of a statement while one is used, otherwise that of a ping."""
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "checkout", _expect_statements)
    event.listen(engine, "checkin", _expect_pings)


def allow_silence(connection: Any, seconds: float | None) -> None:
    """Until the connection returns to its pool. `connection` is the driver's; None: without a limit."""
    connection.max_silence = seconds


def _connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> DeadlineConnection:
    connection = DeadlineConnection.connect(*arguments, **options)
    connection.max_silence = PING_SECONDS
    return connection


def _expect_statements(connection: DeadlineConnection, *_: Any) -> None:
    connection.max_silence = STATEMENT_SECONDS


def _expect_pings(connection: DeadlineConnection | None, _record: Any) -> None:
    if connection is not None:  # it was not lost meanwhile
        connection.max_silence = PING_SECONDS
