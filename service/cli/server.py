"""`paceline serve`: checks the settings, then runs the service in uvicorn."""

import asyncio
import os
import shlex
import socket
import sys
from dataclasses import replace
from types import FrameType
from typing import cast

import uvicorn

from service import private_files
from service.api.http.server.connection_limits import raise_file_limit
from service.api.http.server.server_config import server_config
from service.app.staged_start import StagedApp
from service.cli.database_lock import DatabaseInUse, database_lock
from service.cli.upgraded_database import upgraded_database
from service.operations.tokens import any_token
from service.runtime import garbage_collection
from service.runtime.context import Context
from service.settings import Settings
from service.stack.ports import becomes_free, taken
from service.store.sql.database import Database
from trainer.traces import TracingNotInstalled, tracing

SHUTDOWN_SECONDS = 2
"""How long open streams and long polls may continue after SIGTERM."""

THREAD_SWITCH_SECONDS = 0.001
"""Python's default of 5 ms is how long a busy event loop keeps the interpreter from the thread that stores reports."""


class CannotServe(Exception):
    """Why the service does not start, and what to do."""


def serve(host: str | None, port: int | None, *, insecure: bool) -> None:
    """Serve until SIGINT or SIGTERM. Raises BadSettings or CannotServe before it listens."""
    private_files.restrict_new_files()
    settings = Settings.from_env()
    settings = replace(
        settings,
        host=host or settings.host,
        port=settings.port if port is None else port,
        insecure=insecure or settings.insecure,
    )
    settings = replace(settings, advertised_url=settings.advertised_url or _own_url(settings))
    if settings.tracing:
        _set_up_tracing()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    _check_port(settings)
    settings.prepare_directories()
    try:
        with database_lock(settings.database_url):
            _run(settings)
    except DatabaseInUse as error:
        raise CannotServe(str(error)) from error


def _run(settings: Settings) -> None:
    with upgraded_database(settings) as database:
        _check_access(settings, database)
    config = server_config(
        StagedApp(settings),
        settings,
        most_connections=raise_file_limit(),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = Server(config)
    server.run()
    if server.failure is not None:
        raise server.failure


class Server(uvicorn.Server):
    """Ends long polls and streams as soon as a stop signal arrives, so that their callers get a whole answer."""

    failure: Exception | None = None
    """Why the service has ended by itself."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then complete the application.

        The leases are extended only then, so that a slow start does not shorten what it grants.
        """
        await super().startup(sockets)
        if self.started:
            self._completing = asyncio.create_task(self._complete())

    async def _complete(self) -> None:
        try:
            await cast(StagedApp, self.config.app).complete()
            garbage_collection.resume_rarely()
        except Exception as error:  # noqa: BLE001 - `serve` raises it
            self.failure = error
            self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        context: Context = cast(StagedApp, self.config.app).state.context
        # In the event loop, because the code that the signal interrupted may hold a lock that `stop` takes.
        self._loop.call_soon_threadsafe(context.stop)
        super().handle_exit(sig, frame)


def _set_up_tracing() -> None:
    try:
        tracing.set_up("service")
    except TracingNotInstalled as error:
        raise CannotServe(str(error)) from error


def _own_url(settings: Settings) -> str | None:
    """The address that the service listens at; None for one that means a different machine to each caller."""
    if settings.host in ("0.0.0.0", "::", "") or not settings.port:
        return None
    return f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"


def _check_port(settings: Settings) -> None:
    if settings.port and not becomes_free(settings.host, settings.port):
        raise CannotServe(taken(settings.host, settings.port, "port", "PACELINE_PORT"))


def _check_access(settings: Settings, database: Database) -> None:
    if not settings.needs_tokens or any_token(database):
        return
    if settings.require_tokens:
        why, otherwise = "PACELINE_REQUIRE_TOKENS is set", "unset PACELINE_REQUIRE_TOKENS"
    else:
        why = "a caller can run code"
        otherwise = (
            "bind to 127.0.0.1; or, in a trusted network, allow callers without tokens: --insecure or "
            "PACELINE_INSECURE=1"
        )
    create = f"`PACELINE_DATA_DIR={shlex.quote(str(settings.data_dir))} paceline token create NAME --role admin`"
    if "PACELINE_DATABASE_URL" in os.environ:  # not repeated here: it may hold a password
        create = "`paceline token create NAME --role admin`, with the PACELINE_DATABASE_URL that the service has"
    raise CannotServe(
        f"callers of {settings.host} need an access token, because {why}, and no token exists yet. Create one: "
        f"{create}; and set "
        f"PACELINE_TOKEN to what it prints, where the command line and the agent run. Or {otherwise}"
    )
