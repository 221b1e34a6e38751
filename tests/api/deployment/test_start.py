"""The start of a service: calls are answered first, then the leases are extended and the background loops run."""

import threading
from typing import Any

import pytest
import uvicorn

from service.api.http.server.http_protocol import HttpProtocol
from service.app import create_app, start_loops
from service.cli import server
from service.settings import Settings
from service.stack.ports import accepts, free_port
from service.store.sql.database import Database
from service.store.sql.schema import upgrade
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_leases_are_extended_once_the_service_listens(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow start would otherwise shorten the lease that it grants."""
    database = Database(settings.database_url)
    upgrade(database)
    database.close()
    port, listened, started = free_port(), [], threading.Event()

    def look_then_start(app: Any) -> None:
        listened.append(accepts("127.0.0.1", port))
        start_loops(app)
        started.set()

    monkeypatch.setattr(server, "start_loops", look_then_start)
    app = create_app(settings, starts_loops=False)
    serving = server.Server(uvicorn.Config(app, port=port, http=HttpProtocol, log_level="warning"))
    thread = threading.Thread(target=serving.run)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    serving.should_exit = True
    thread.join(PATIENCE_SECONDS)
    assert listened == [True]
