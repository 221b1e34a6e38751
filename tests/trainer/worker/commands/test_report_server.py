"""A command's reports by HTTP: each call is answered with the decision, or with what would be right."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from trainer.worker.commands.command_metrics import (
    CommandReport,
    ReportServer,
)

SECONDS = 120


@contextmanager
def serving(put: Callable[[CommandReport], None]) -> Iterator[ReportServer]:
    server = ReportServer(put)
    server.start()
    try:
        yield server
    finally:
        server.finish()


def decide(decision: str, found: list[CommandReport]) -> Callable[[CommandReport], None]:
    def put(report: CommandReport) -> None:
        found.append(report)
        assert report.decision
        report.decision.set_result(decision)

    return put


@pytest.mark.parametrize("decision", ["continue", "stop"])
def test_a_call_is_answered_with_the_decision(decision: str) -> None:
    found: list[CommandReport] = []
    with serving(decide(decision, found)) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        answer = httpx.post(server.url, json={"metrics": {"loss": 0.5}}, headers=headers, timeout=SECONDS)
    assert (answer.status_code, answer.json()) == (200, {"decision": decision})
    assert [one.metrics for one in found] == [{"loss": 0.5}]


@pytest.mark.parametrize(
    ("token", "body", "status", "says"),
    [
        ("wrong", {"metrics": {"loss": 1}}, 401, "$PACELINE_LEASE"),
        (None, {"loss": 1}, 422, "the body has no object `metrics`"),
        (None, [1], 422, "the body has no object `metrics`"),
        (None, "x" * 1_000_001, 422, "1 to 1000000 bytes"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(token: str | None, body: Any, status: int, says: str) -> None:
    with serving(lambda _: pytest.fail("no report")) as server:
        headers = {"Authorization": f"Bearer {token or server.token}"}
        answer = httpx.post(server.url, content=json.dumps(body), headers=headers, timeout=SECONDS)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_a_call_with_json_that_is_nested_too_deeply_says_so() -> None:
    with serving(lambda _: pytest.fail("no report")) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        answer = httpx.post(server.url, content="[" * 100_000, headers=headers, timeout=SECONDS)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("maximum recursion depth exceeded while decoding a JSON array")
