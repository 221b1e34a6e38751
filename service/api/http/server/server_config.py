"""How uvicorn serves the application: with our HTTP protocol and its limits."""

import asyncio
from functools import partial
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn import Config

from service.api.http.server.connection_limits import ConnectionLimits, ConnectionWatch
from service.api.http.server.http_protocol import HttpProtocol
from service.settings import Settings

PROTECTION_HEADERS = [("Cross-Origin-Resource-Policy", "same-origin"), ("X-Content-Type-Options", "nosniff")]
"""Of all answers: a page of another origin can include none of them, as a script for example."""


def server_config(app: ASGIApp, settings: Settings, *, most_connections: int | None = None, **more: Any) -> Config:
    """`most_connections` is a limit besides that of the settings. `more` are options of uvicorn."""
    most = min(settings.max_connections, most_connections or settings.max_connections)
    limits = ConnectionLimits(most, settings.request_seconds, settings.stall_seconds)
    protocol = cast(type[asyncio.Protocol], partial(HttpProtocol, ConnectionWatch(limits)))
    return Config(
        app,
        http=protocol,
        ws="none",
        access_log=False,  # the log would be mostly heartbeats
        log_config=None,  # uvicorn's lines look as all others
        headers=PROTECTION_HEADERS,
        **more,
    )
