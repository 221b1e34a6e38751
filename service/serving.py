"""`paceline serve` and `paceline db upgrade`: the service as a process."""

from dataclasses import replace

import uvicorn

from service.app import create_app
from service.processes import is_free
from service.settings import Settings
from service.store.database import Database
from service.store.schema import upgrade

SHUTDOWN_SECONDS = 2
"""How long open streams and long polls may go on after SIGTERM."""


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
    _check_address(settings)
    settings.prepare_directories()
    upgrade_database(settings)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        access_log=False,  # heartbeats would drown everything else
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def upgrade_database(settings: Settings | None = None) -> None:
    """Bring the database to the newest schema; harmless when it is there."""
    settings = settings or Settings.from_env()
    settings.prepare_directories()
    database = Database(settings.database_url)
    try:
        upgrade(database)
    finally:
        database.close()


def _check_address(settings: Settings) -> None:
    if not settings.on_loopback and not settings.insecure:
        raise CannotServe(
            f"{settings.host} can be reached from other machines, and whoever reaches it may run code here. "
            f"Bind to 127.0.0.1, or say that the network is trusted: --insecure or PACELINE_INSECURE=1"
        )
    if settings.port and not is_free(settings.host, settings.port):
        raise CannotServe(
            f"port {settings.port} of {settings.host} is already taken. Stop what listens there, or choose another: "
            f"`--port {settings.port + 1}` or PACELINE_PORT={settings.port + 1}"
        )
