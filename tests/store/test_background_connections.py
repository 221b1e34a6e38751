"""A service process keeps as many connections for its background work as that can hold at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from service.app.application import _loops
from service.app.state import new_state
from service.runtime.computation.threads import IN_BACKGROUND
from service.runtime.events.event_feeds import OLDER_READERS
from service.settings import Settings
from tests.conftest import running

pytestmark = [pytest.mark.slow, pytest.mark.databases("postgresql")]

GROUP_COMMIT = PROPOSALS_AHEAD = 1
"""Threads that hold one connection each."""


def most_held(engine: Engine, work: Callable[[], object]) -> int:
    """The most connections that the work holds at once."""
    held, most = 0, 0

    def checked_out(*_: Any) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)

    def checked_in(*_: Any) -> None:
        nonlocal held
        held -= 1

    listeners = {"checkout": checked_out, "checkin": checked_in}
    for name, listener in listeners.items():
        event.listen(engine.pool, name, listener)
    work()
    for name, listener in listeners.items():
        event.remove(engine.pool, name, listener)
    return most


def test_no_background_work_waits_for_a_connection_that_other_background_work_holds(settings: Settings) -> None:
    with running(settings):  # which makes the tables
        pass
    context = new_state(replace(settings, mlflow_uri="http://127.0.0.1:9")).context
    held = {loop.name: most_held(context.database.engine, loop._work.run_once) for loop in _loops(context)}
    context.close()
    assert {name for name, count in held.items() if count == 2} == {"mirroring", "charting"}, "a lock, and a query"
    assert held.pop("leftover removal") == 0, "it has no database"
    of_loops = sum(max(1, count) for count in held.values())  # some had nothing to do
    assert of_loops + GROUP_COMMIT + PROPOSALS_AHEAD + OLDER_READERS <= IN_BACKGROUND
