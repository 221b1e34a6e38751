"""A proxy before MLflow takes no body of a size: what is too large is written in smaller calls."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests

from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.runs.run_update import RunUpdate
from service.mirror.tracking_server.tracking_client import TrackingClient
from tests.mirror.bad_connection import BadConnection, Call, answer, answering, timeout
from tests.mirror.conftest import START

pytestmark = pytest.mark.slow


def test_what_is_too_large_for_a_proxy_is_written_in_smaller_calls(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    history = begin_experiment(config={f"text_{number}": "é" * 3000 for number in range(20)})
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 1, **{f"layer_{number}": number for number in range(700)})
    connection.foreign_answer = larger_than(120_000)

    mirror.catch_up()

    data = mirror.runs(history.name)["trial 00"].data
    assert (len(data.metrics), len(data.params)) == (700, 21)
    assert data.tags["paceline.status"] == "running"


def test_what_is_too_large_for_a_proxy_by_itself_is_an_error_with_advice(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    begin_experiment()
    connection.foreign_answer = larger_than(300)
    with pytest.raises(MlflowUnavailable, match=r"takes no body of this size \(413\): raise the proxy's limit"):
        mirror.loop.run_once()
    assert connection.calls.count("experiments/create") == 1


def larger_than(limit: int) -> Callable[[Call], requests.Response | None]:
    """As nginx answers a larger body."""
    page = "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n</html>"
    return lambda call: answer(413, "Request Entity Too Large", page) if len(json.dumps(call.body)) > limit else None


def test_a_call_that_takes_too_long_after_one_was_too_large_is_not_repeated(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    """MLflow may still execute it. The error is that of the call."""
    history = begin_experiment()
    mirror.catch_up()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    mirror.catch_up()
    history.report(trial, 1, **{f"layer_{number}": number for number in range(800)})
    counts: list[int] = []

    def failure(call: Call) -> Exception | None:
        counts.append(len(call.body.get("metrics") or ()))
        return timeout() if 0 < counts[-1] <= 400 else None

    connection.failure = failure
    connection.foreign_answer = larger_than(40_000)
    with pytest.raises(MlflowUnavailable) as raised:
        mirror.loop.run_once()
    assert [count for count in counts if count] == [800, 400]
    assert "413" not in str(raised.value)


@pytest.mark.parametrize("retry_after", [None, "30"])
@pytest.mark.parametrize(
    "body", [b"", b"<html></html>", b'{"message": "Request size limit exceeded"}'], ids=["empty", "page", "json"]
)
def test_a_proxy_refuses_a_size_with_whatever_body(body: bytes, retry_after: str | None) -> None:
    """MLflow's client shows JSON without its status. Smaller calls do not wait for a pause."""
    calls: list[str] = []
    update = RunUpdate(START, {"lr": "0.1", "layers": "2"})
    with answering(413, calls, retry_after, body) as address, pytest.raises(MlflowUnavailable, match=r"\(413\)"):
        TrackingClient(address).write("a-run", update)
    assert calls.count("runs/log-batch") == 2
