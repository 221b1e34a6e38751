"""The start of a service: reports first, then all other calls, the leases and the background loops."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.datastructures import State

from service.api.http.server.server_config import server_config
from service.app import application
from service.app.staged_start import StagedApp
from service.cli import server
from service.settings import Settings
from service.stack.ports import accepts, free_port
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

REPORT = "/v1/trials/t-0123456789abcdef/reports"


@contextmanager
def starting(settings: Settings) -> Iterator[tuple[server.Server, threading.Thread, str]]:
    database = Database(settings.database_url)
    upgrade(database)
    database.close()
    port = free_port()
    config = server_config(StagedApp(settings), settings, port=port, log_level="warning", timeout_graceful_shutdown=1)
    serving = server.Server(config)
    thread = threading.Thread(target=serving.run)
    thread.start()
    try:
        yield serving, thread, f"http://127.0.0.1:{port}"
    finally:
        serving.should_exit = True
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_leases_are_extended_once_the_service_listens(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow start would otherwise shorten the lease that it grants."""
    listened, started, real = [], threading.Event(), application.start_loops

    def look_then_start(state: State) -> None:
        listened.append(accepts("127.0.0.1", port))
        real(state)
        started.set()

    monkeypatch.setattr(application, "start_loops", look_then_start)
    with starting(settings) as (_, _, url):
        port = int(url.rpartition(":")[2])
        assert started.wait(PATIENCE_SECONDS)
    assert listened == [True]


def test_reports_are_answered_before_the_other_routes_are_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_complete, real = threading.Event(), application.build

    def wait_then_build(state: State) -> FastAPI:
        assert may_complete.wait(PATIENCE_SECONDS)
        return real(state)

    monkeypatch.setattr(application, "build", wait_then_build)
    with starting(settings) as (serving, _, url), ThreadPoolExecutor(1) as pool:
        wait_until(lambda: serving.started)
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
            ready = pool.submit(httpx.get, f"{url}/readyz", timeout=PATIENCE_SECONDS)
            answer = http.post(REPORT, headers={"Authorization": "Bearer x"}, json={"reports": []})
            assert (answer.status_code, ready.done()) == (404, False), answer.text
            may_complete.set()
            assert ready.result().status_code == 200
            assert http.get("/v1/experiments").status_code == 200


def test_a_service_that_cannot_be_completed_ends(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would otherwise answer reports only, and let all else wait."""

    def fail(_: Any) -> None:
        raise ImportError("a package is missing")

    monkeypatch.setattr(application, "build", fail)
    with starting(settings) as (serving, thread, _):
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert isinstance(serving.failure, ImportError)


def test_a_service_can_be_stopped_before_it_is_complete(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_complete = threading.Event(), threading.Event()

    real = application.build

    def wait_then_build(state: State) -> FastAPI:
        begun.set()
        assert may_complete.wait(PATIENCE_SECONDS)
        return real(state)

    monkeypatch.setattr(application, "build", wait_then_build)
    started: list[Any] = []
    monkeypatch.setattr(application, "start_loops", started.append)
    with starting(settings) as (serving, _, _):
        assert begun.wait(PATIENCE_SECONDS)
        serving.should_exit = True
        may_complete.set()
    assert serving.failure is None
