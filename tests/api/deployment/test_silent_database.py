"""A database that is silent, as behind a proxy that has lost it: calls get 503 or are answered, and nothing hangs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.settings import Settings
from service.store.sql import database as store
from tests.conftest import Api, Held, running
from tests.databases import postgres_database
from tests.silent_proxy import Clock, SilentProxy, clock, until_noticed
from tests.timeouts import wait_until

__all__ = ["clock"]

pytestmark = pytest.mark.slow

CALLERS = 8
"""More than there are threads for heartbeats."""


@pytest.fixture
def proxy(postgres: str) -> Iterator[SilentProxy]:
    with postgres_database(postgres) as url, SilentProxy(url).passing() as proxy:
        yield proxy


@pytest.fixture
def settings(proxy: SilentProxy, tmp_path: Path) -> Settings:
    settings = Settings(data_dir=tmp_path, database_url=proxy.url, storage=str(tmp_path / "checkpoints"))
    settings.prepare_directories()
    return replace(settings, lease_seconds=3600)


@pytest.fixture
def service(settings: Settings, proxy: SilentProxy) -> Iterator[Api]:
    with running_before(proxy, settings) as api:
        yield api


@contextmanager
def running_before(proxy: SilentProxy, settings: Settings) -> Iterator[Api]:
    """At the end, no silent connection keeps the service from stopping."""
    with running(settings) as api:
        try:
            yield api
        finally:
            proxy.cut()


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CALLERS) as callers:
        yield callers


def a_trial(service: Api) -> Held:
    held = service.ask(service.create()["name"])
    assert held
    return held


def fill_pool(service: Api) -> None:
    connections = [service.app.state.context.database.engine.connect() for _ in range(10)]
    for connection in connections:
        connection.close()


def is_refused(answer: httpx.Response) -> bool:
    """Whether the caller is asked to repeat the call."""
    assert answer.status_code in {200, 503}, answer.text
    assert answer.status_code == 200 or int(answer.headers["Retry-After"]) > 0
    return answer.status_code == 503


def patiently(call: Callable[[], httpx.Response]) -> httpx.Response:
    """Repeat the call as agents and slots do."""
    while is_refused(answer := call()):
        pass
    return answer


def heartbeat(held: Held) -> httpx.Response:
    return held.api.http.post(f"/v1/trials/{held.trial}/heartbeat", headers=held.headers)


def report(held: Held, accuracy: float) -> httpx.Response:
    body = {"reports": [{"sequence": 0, "metrics": {"accuracy": accuracy}}]}
    return held.api.http.post(f"/v1/trials/{held.trial}/reports", headers=held.headers, json=body)


def test_pooled_connections_that_go_silent_are_replaced(
    service: Api, proxy: SilentProxy, clock: Clock, callers: ThreadPoolExecutor
) -> None:
    held = a_trial(service)
    fill_pool(service)
    proxy.lose_all()
    calls = [lambda: heartbeat(held), lambda: service.http.get("/v1/experiments")] * (CALLERS // 2)
    called = [callers.submit(patiently, call) for call in calls]
    until_noticed(proxy, clock, lambda: all(one.done() for one in called))
    assert [one.result().status_code for one in called] == [200] * CALLERS
    until_noticed(proxy, clock, lambda: service.http.get("/readyz").status_code == 200)


def test_reports_whose_connection_goes_silent_are_refused_and_later_ones_are_stored(
    service: Api, proxy: SilentProxy, clock: Clock, callers: ThreadPoolExecutor
) -> None:
    held, other = a_trial(service), a_trial(service)
    proxy.lose_on = b"0.123456"
    lost = callers.submit(report, held, 0.123456)
    wait_until(lambda: proxy.silent_count)
    following = callers.submit(patiently, lambda: report(other, 0.5))
    until_noticed(proxy, clock, lambda: lost.done() and following.done())
    assert is_refused(lost.result())
    patiently(lambda: report(held, 0.123456))
    for one, value in ((held, 0.123456), (other, 0.5)):
        [point] = service.get(f"/v1/trials/{one.trial}/reports")["items"]
        assert point["metrics"]["accuracy"] == value


def test_the_loops_go_on_after_their_connections_went_silent(service: Api, proxy: SilentProxy, clock: Clock) -> None:
    loops = [one for one in service.app.state.loops if one.name in {"lease extension", "lease expiry", "time limits"}]

    def succeeded_at() -> list[Any]:
        return [one.health()["succeeded_at"] for one in loops]

    wait_until(lambda: len(loops) == 3 and all(succeeded_at()))
    fill_pool(service)
    proxy.lose_all()
    wait_until(lambda: proxy.silent_count)
    lost_at = succeeded_at()
    until_noticed(
        proxy,
        clock,
        lambda: (
            all(now > lost for now, lost in zip(succeeded_at(), lost_at, strict=True))
            and all(one.health()["ok"] for one in loops)
        ),
    )


def test_calls_get_503_while_the_database_is_suspended(
    settings: Settings, proxy: SilentProxy, clock: Clock, callers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store.CONNECT_ARGUMENTS, "connect_timeout", 2)  # for engines that are made from now on
    with running_before(proxy, settings) as service:
        held = a_trial(service)
        fill_pool(service)
        proxy.loses_servers = True
        proxy.lose_all()
        called = [callers.submit(heartbeat, held), callers.submit(service.http.get, "/readyz")]
        until_noticed(proxy, clock, lambda: all(one.done() for one in called))
        assert is_refused(called[0].result())
        readiness = called[1].result()
        assert (readiness.status_code, readiness.json()["ready"]) == (503, False)
        assert readiness.json()["database"].startswith("unreachable")
        proxy.loses_servers = False
        until_noticed(proxy, clock, lambda: service.http.get("/readyz").status_code == 200)
        assert patiently(lambda: heartbeat(held)).status_code == 200
