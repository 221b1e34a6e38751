"""`paceline serve`, and what else works on the service's database directly."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import uvicorn
from threadpoolctl import threadpool_limits

from service.app import create_app
from service.operations.tokens import any_token
from service.runtime import garbage_collection
from service.runtime.context import Context
from service.settings import Settings
from service.stack.child_process import is_free
from service.store.sql.database import Database
from service.store.sql.schema import upgrade

SHUTDOWN_SECONDS = 2
"""How long open streams and long polls may go on after SIGTERM."""

THREAD_SWITCH_SECONDS = 0.001
"""Python's 5 ms let a busy event loop keep the interpreter that long after each statement of the reporting thread's."""


class CannotServe(Exception):
    """Why the service does not start, and what to do."""


def serve(host: str | None, port: int | None, *, insecure: bool) -> None:
    """Serve until SIGINT or SIGTERM. Raises BadSettings or CannotServe before it listens."""
    settings = Settings.from_env()
    settings = replace(
        settings,
        host=host or settings.host,
        port=settings.port if port is None else port,
        insecure=insecure or settings.insecure,
    )
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    garbage_collection.collect_rarely()
    threadpool_limits(1)  # a proposal's matrices are small: more threads slow it down, and everything else
    _check_port(settings)
    with upgraded_database(settings) as database:
        _check_access(settings, database)
    with garbage_collection.frozen_afterwards():
        config = uvicorn.Config(
            create_app(settings),
            host=settings.host,
            port=settings.port,
            access_log=False,  # heartbeats would drown everything else
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        config.load()
    Server(config).run()


class Server(uvicorn.Server):
    """Tells long polls and streams to end as soon as it is told itself, so that nobody is cut off."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        context: Context = self.config.app.state.context  # type: ignore[union-attr]
        # Not here: what the signal has interrupted may hold the very locks that this takes.
        self._loop.call_soon_threadsafe(context.stop)
        super().handle_exit(sig, frame)


@contextmanager
def upgraded_database(settings: Settings | None = None) -> Iterator[Database]:
    """The settings' database with the newest schema. Raises BadSettings."""
    settings = settings or Settings.from_env()
    settings.prepare_directories()
    database = Database(settings.database_url)
    try:
        upgrade(database)
        yield database
    finally:
        database.close()


def _check_port(settings: Settings) -> None:
    if settings.port and not is_free(settings.host, settings.port):
        raise CannotServe(
            f"port {settings.port} of {settings.host} is already taken. Stop what listens there, or choose another: "
            f"`--port {settings.port + 1}` or PACELINE_PORT={settings.port + 1}"
        )


def _check_access(settings: Settings, database: Database) -> None:
    if settings.needs_tokens and not any_token(database):
        raise CannotServe(
            f"whoever can call the service can run code, callers at {settings.host} need a token, and there is none "
            f"yet. Make one: `paceline token create NAME --role admin`. Or bind to 127.0.0.1, or say that the network "
            f"is trusted: --insecure or PACELINE_INSECURE=1"
        )
