"""Which calls wake the claims and event streams that wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.early_stopping.promotion import PROMOTE, given, paused_ones, report
from tests.conftest import Api

pytestmark = pytest.mark.databases("sqlite")

CLAIMS, STREAMS = "claims", "event streams"


def woken_by(service: Api, call: Callable[[], Any]) -> set[str]:
    """Which kinds of waiting calls the call wakes, as what waits in the service's event loop learns of it."""
    context = service.app.state.context

    async def called() -> set[str]:
        with context.capacity_freed.subscribe() as claims, context.new_events.subscribe() as streams:
            await asyncio.to_thread(call)
            return {name for name, woken in ((CLAIMS, claims), (STREAMS, streams)) if woken.is_set()}

    return asyncio.run(called())


def test_a_poll_that_gives_no_trial_wakes_neither_claims_nor_event_streams(service: Api) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 1})["name"]
    asked = []
    assert woken_by(service, lambda: asked.append(service.ask(name))) == {CLAIMS, STREAMS}
    assert asked[0] is not None
    assert woken_by(service, lambda: asked.append(service.ask(name))) == set()
    assert asked[1] is None


def test_a_repeated_poll_wakes_neither_claims_nor_event_streams(service: Api) -> None:
    path, key = f"/v1/experiments/{service.create()['name']}/ask", {"Idempotency-Key": "one"}
    answers: list[Any] = []
    assert woken_by(service, lambda: answers.append(service.post(path, headers=key))) == {CLAIMS, STREAMS}
    assert woken_by(service, lambda: answers.append(service.post(path, headers=key))) == set()
    assert answers[0]["trial"] == answers[1]["trial"]


def test_a_report_wakes_claims_only_if_it_releases_a_paused_trial(service: Api) -> None:
    name = paused_ones(service, [0.9, 0.1], early_stopping=PROMOTE)
    held, answers = given(service, name), list[str]()
    assert woken_by(service, lambda: answers.append(report(held, 0.2))) == {CLAIMS, STREAMS}
    assert answers == ["stop"]
    assert given(service, name).assignment["number"] == 0


def test_an_ordinary_report_wakes_event_streams_only(service: Api) -> None:
    held = given(service, paused_ones(service, [0.9], early_stopping=PROMOTE))
    assert woken_by(service, lambda: report(held, 0.2)) == {STREAMS}
