"""Cursors that no list has given: refused with the reason, on every list and database."""

import base64
import json
from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.slow

TIME = "2026-01-01T00:00:00Z"
KEYS: list[Any] = [
    ["0001-01-01T00:00:00+14:00", "x"], ["9999-12-31T23:59:59-14:00", "x"], ["0001-01-01T00:00:00Z", "x"],
    ["9999-12-31T23:59:59.999999Z", "x"], ["10000-01-01T00:00:00Z", "x"], ["-0001-01-01T00:00:00Z", "x"],
    ["2026-01-01T00:00:00", "x"], ["2026-01-01T00:00:00+02:00", "x"], ["2026-02-30T00:00:00Z", "x"], [0, "x"],
    [1e20, "x"], [-1e11, "x"], [2**70, "x"], [None, "x"], [True, "x"], [TIME, 1], [TIME, None], [TIME, "a\0b"],
    [TIME, "x" * 5000], [TIME], [TIME, "x", "y"], {}, [], None, 1, "x", [[TIME], "x"], [1e308, 2**31], [1.0, 2**63],
    [1.0, 2**64], [1.0, -1], [1.0, 1.5], [1.0, None], [1.0, True], ["1.0", 1], [2**70, 1], [10**400, 1], [True, 1],
]  # fmt: skip
CURSORS = [base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode() for key in KEYS] + [
    base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode()
    for text in ("[NaN,1]", "[Infinity,1]", "[1e999,1]", f'["{TIME}","\ud800"]', f'["{TIME}","\\ud800"]', "[" * 10_000)
]


def forged_cursor(key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode()


def lists(name: str) -> list[str]:
    path = f"/v1/experiments/{name}"
    return ["/v1/experiments", f"{path}/trials", f"{path}/trials?sort=value", f"{path}/best"]


@pytest.mark.parametrize("objectives", [1, 2])
def test_a_forged_cursor_is_refused_with_the_reason(service: Api, objectives: int) -> None:
    goals = [{"metric": f"m{n}", "direction": "minimize"} for n in range(objectives)]
    name = service.create(objectives=goals)["name"]
    held = service.ask(name)
    assert held
    metrics: dict[str, Any] = {goal["metric"]: 0.5 for goal in goals}
    held.report(**metrics)
    for path in lists(name):
        for cursor in [*CURSORS, "", " ", "=", "a", "ä", "x" * 10_000]:
            answer = service.http.get(path, params={"cursor": cursor})
            ignored = objectives == 1 and path.endswith("/best")
            assert answer.status_code in ({200, 400} if ignored else {400}), (path, cursor, answer.text)
            if answer.status_code == 400:
                assert "next_cursor" in answer.json()["detail"]


@pytest.mark.parametrize("cursor", ["1e3", "-1", str(2**63), str(2**64), "9" * 5000, "٣", "NaN", "", "true"])
def test_a_forged_number_of_a_page_is_refused(service: Api, cursor: str) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    for path in (f"/v1/trials/{held.trial}/reports", f"/v1/experiments/{name}/events?follow=false"):
        assert service.http.get(path, params={"cursor": cursor}).status_code == 400, path
    events = f"/v1/experiments/{name}/events?follow=false"
    assert service.http.get(events, headers={b"Last-Event-ID": cursor.encode()}).status_code == 422


def test_a_forged_cursor_of_numbers_or_names_is_refused(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    trial, wrong = f"/v1/trials/{held.trial}", [[-1], [True], ["1"], [1.5], [2**53 + 1], [2**64], [1, 2, 3], [None], []]
    forged: dict[str, list[Any]] = {
        f"{trial}/reports": wrong,
        f"{trial}/reports?counted=false": [*wrong, [1, -1], [2**64, 1]],
        f"{trial}/checkpoints": wrong,
        f"{trial}/decisions": wrong,
        f"/v1/experiments/{name}/events?follow=false": wrong,
        "/v1/agents": [[1], [None], ["a\0b"], ["x", "y"], []],
    }
    for path, keys in forged.items():
        for key in keys:
            answer = service.http.get(f"{path}{'&' if '?' in path else '?'}cursor={forged_cursor(key)}")
            assert answer.status_code == 400, (path, key, answer.text)
    for key in ([2**31], [2**53]):
        for path in (f"{trial}/reports", f"{trial}/checkpoints", f"{trial}/decisions"):
            assert service.get(path, params={"cursor": forged_cursor(key)})["next_cursor"] is None
