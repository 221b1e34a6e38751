"""Which calls wake the claims and event streams that wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.databases("sqlite")


def wakes(service: Api, call: Callable[[], Any]) -> bool:
    """Whether the call wakes waiting claims, as what waits in the service's event loop learns of it."""

    async def called() -> bool:
        with service.app.state.context.capacity_freed.subscribe() as woken:
            await asyncio.to_thread(call)
            return bool(woken.is_set())

    return asyncio.run(called())


def test_a_poll_that_gives_no_trial_does_not_wake_waiting_claims(service: Api) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 1})["name"]
    asked = []
    assert wakes(service, lambda: asked.append(service.ask(name)))
    assert asked[0] is not None
    assert not wakes(service, lambda: asked.append(service.ask(name)))
    assert asked[1] is None


def test_a_repeated_poll_does_not_wake_waiting_claims(service: Api) -> None:
    path, key = f"/v1/experiments/{service.create()['name']}/ask", {"Idempotency-Key": "one"}
    answers: list[Any] = []
    assert wakes(service, lambda: answers.append(service.post(path, headers=key)))
    assert not wakes(service, lambda: answers.append(service.post(path, headers=key)))
    assert answers[0]["trial"] == answers[1]["trial"]
