"""`paceline serve`: checks the settings, then runs the service in uvicorn."""

import asyncio
import socket
import sys
from dataclasses import replace
from types import FrameType

import uvicorn
from threadpoolctl import threadpool_limits

from service.api.http.http_protocol import HttpProtocol
from service.app import create_app
from service.cli.upgraded_database import upgraded_database
from service.operations.tokens import any_token
from service.runtime import garbage_collection
from service.runtime.context import Context
from service.settings import Settings
from service.stack.ports import is_free
from service.store.sql.database import Database

SHUTDOWN_SECONDS = 2
"""How long open streams and long polls may continue after SIGTERM."""

THREAD_SWITCH_SECONDS = 0.001
"""Python's default of 5 ms is how long a busy event loop keeps the interpreter from the thread that stores reports."""


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
    threadpool_limits(1)  # a proposal's matrices are small: more threads slow down it and everything else
    _check_port(settings)
    with upgraded_database(settings) as database:
        _check_access(settings, database)
    with garbage_collection.frozen_afterwards():
        config = uvicorn.Config(
            create_app(settings),
            host=settings.host,
            port=settings.port,
            http=HttpProtocol,
            access_log=False,  # mostly heartbeats
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        config.load()
    Server(config).run()


class Server(uvicorn.Server):
    """Ends long polls and streams as soon as a stop signal arrives, so that their callers get a whole answer."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        context: Context = self.config.app.state.context  # type: ignore[union-attr]
        # In the event loop, because the code that the signal interrupted may hold a lock that `stop` takes.
        self._loop.call_soon_threadsafe(context.stop)
        super().handle_exit(sig, frame)


def _check_port(settings: Settings) -> None:
    if settings.port and not is_free(settings.host, settings.port):
        raise CannotServe(
            f"port {settings.port} of {settings.host} is already taken. Stop what listens there, or choose another "
            f"port: `--port {settings.port + 1}` or PACELINE_PORT={settings.port + 1}"
        )


def _check_access(settings: Settings, database: Database) -> None:
    if settings.needs_tokens and not any_token(database):
        raise CannotServe(
            f"callers of {settings.host} need an access token, because a caller can run code, and no token exists yet. "
            f"Create one: `paceline token create NAME --role admin`. Or bind to 127.0.0.1; or, in a trusted network, "
            f"allow callers without tokens: --insecure or PACELINE_INSECURE=1"
        )
