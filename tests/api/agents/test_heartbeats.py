"""A holder's heartbeat is a long poll, so that orders reach the holder immediately."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from service.settings import Settings
from tests.conftest import Api, Held, running
from tests.timeouts import wait_until

pytestmark = pytest.mark.slow

# A heartbeat that is not answered early makes the test fail.
WAIT, TIMEOUT_SECONDS = {"wait_seconds": 60}, 50


@contextmanager
def waiting(held: Held, at: Api | None = None) -> Iterator[Future[httpx.Response]]:
    """A heartbeat that is already waiting when the block begins; `at`: at another service process than the trial's."""
    api = at or held.api
    with ThreadPoolExecutor(1) as pool:
        path = f"/v1/trials/{held.trial}/heartbeat"
        answer = pool.submit(api.http.post, path, headers=held.headers, json=WAIT, timeout=TIMEOUT_SECONDS)
        wait_until(lambda: held.trial in api.app.state.context.holder_changes.subscribed_keys())
        yield answer


def test_a_cancel_answers_a_waiting_heartbeat_immediately(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    with waiting(held) as answer:
        service.post(f"/v1/experiments/{name}/cancel")
        assert answer.result().json()["decision"] == "kill"


def test_the_end_of_the_attempt_answers_a_waiting_heartbeat(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    with waiting(held) as answer:
        held.report(accuracy=1)
        held.finish()
        assert answer.result().json()["type"] == "urn:paceline:error:lease-lost"


def test_a_target_that_another_trial_reaches_answers_a_waiting_heartbeat(service: Api) -> None:
    name = service.create(objectives=[{"metric": "accuracy", "direction": "maximize", "target": 0.9}])["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    with waiting(first) as answer:
        second.report(accuracy=0.95)
        assert answer.result().json()["decision"] == "stop"


def test_without_an_order_a_heartbeat_is_answered_after_its_wait(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    assert held.call("heartbeat", body={"wait_seconds": 0.05})["decision"] == "continue"
    assert held.call("heartbeat")["decision"] == "continue"
    held.call("heartbeat", 422, body={"wait_seconds": 61})


def test_a_cancel_at_another_service_process_answers_a_waiting_heartbeat(settings: Settings) -> None:
    if settings.database_url.startswith("sqlite"):
        pytest.skip("SQLite has one service process")
    with running(settings) as here, running(settings) as there:
        name = here.create()["name"]
        held = here.ask(name)
        assert held
        with waiting(held, at=here) as answer:
            there.post(f"/v1/experiments/{name}/cancel")
            decided: Any = answer.result().json()["decision"]
        assert decided == "kill"
