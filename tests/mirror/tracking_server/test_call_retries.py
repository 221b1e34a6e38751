"""Which calls of MLflow are retried after a failure, and when."""

from collections.abc import Callable
from typing import Any

import pytest

from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.tracking_server.tracking_client import TrackingClient
from tests.mirror.bad_connection import (
    BadConnection,
    answering,
    at,
    no_route,
    refused,
    server_error,
    timeout,
    unknown_name,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("path", "expected"),
    [("runs/get", 6), ("runs/log-batch", 6), ("runs/search", 6), ("runs/create", 6)],
)
def test_calls_that_fail_quickly_are_retried(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, path: str, expected: int
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    history.run(history.trial(0, lr=0.1))
    connection.failure, connection.calls = at(path), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls.count(path) == expected


def test_a_call_that_fails_after_seconds_is_not_retried(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, call_seconds: list[float]
) -> None:
    """MLflow may still execute it."""
    history = begin_experiment()
    mirror.catch_up()
    history.run(history.trial(0, lr=0.1))

    def slow() -> Exception:
        call_seconds.append(5)
        return server_error()

    connection.failure, connection.calls = at("runs/log-batch", slow), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls.count("runs/log-batch") == 1


@pytest.mark.parametrize(("status", "expected"), [(429, 1), (503, 6), (504, 1)])
def test_a_status_decides_whether_a_call_is_retried(status: int, expected: int) -> None:
    """MLflow's client shows these statuses by a text of urllib3 alone, which may change."""
    calls: list[str] = []
    with answering(status, calls) as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert calls.count("runs/get") == expected


def test_between_the_attempts_are_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.sleep", pauses.append)
    with answering(503, []) as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("failure", [timeout, refused, unknown_name, no_route])
def test_a_call_of_a_server_that_is_away_is_not_retried(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, failure: Callable[[], Exception]
) -> None:
    """Each takes seconds."""
    history = begin_experiment()
    mirror.catch_up()
    history.trial(0, lr=0.1)
    connection.failure, connection.calls = lambda _: failure(), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls == ["runs/get"]
