"""What all calls have in common: methods, query parameters, and the order in which faults are answered."""

import gzip
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from service.domain.roles import Role
from service.operations.tokens import create_token
from service.settings import Settings
from service.store.sql.database import Database
from tests.api.contract.operations import LEASED, UNKNOWN, Operation, operations, some_names
from tests.conftest import Api, a_spec, changed, running
from tests.timeouts import wait_until

pytestmark = pytest.mark.slow

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
PROBLEM = "application/problem+json"

Query = list[tuple[str, str | int | float | bool | None]]


@pytest.fixture
def document(service: Api) -> dict[str, Any]:
    found: dict[str, Any] = service.get("/openapi.json")
    return found


@pytest.fixture
def guarded(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, require_tokens=True)) as service:
        yield service


def admin(settings: Settings) -> dict[str, str]:
    database = Database(settings.database_url)
    token = create_token(database, "an admin", Role.ADMIN)
    database.close()
    return {"Authorization": f"Bearer {token}"}


def the_type(answer: Any) -> str:
    assert answer.headers["content-type"] == PROBLEM, answer.text
    return str(answer.json()["type"]).removeprefix("urn:paceline:error:")


def test_a_wrong_method_is_refused_with_the_right_ones(service: Api, document: dict[str, Any]) -> None:
    names, _ = some_names(service)
    for path, methods in document["paths"].items():
        right = {method.upper() for method in methods} | ({"HEAD"} if "get" in methods else set())
        for method in set(METHODS) - right:
            answer = service.http.request(method, path.format_map(names))
            assert (answer.status_code, the_type(answer)) == (405, "method-not-allowed"), f"{method} {path}"
            assert set(answer.headers["allow"].split(", ")) == right, f"{method} {path}"


def test_head_answers_as_get_without_a_body(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    held.report(accuracy=0.5)
    for operation in operations(document, names):
        if operation.method == "GET":
            query = {"follow": False} if "follow" in operation.query_names else {}
            got, head = (service.http.request(method, operation.path, params=query) for method in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (got.status_code, b""), operation
            assert head.headers.get("content-type") == got.headers.get("content-type"), operation
    assert service.http.head("/v1/experiments/nothing").status_code == 404


def test_head_does_not_wait_for_a_stream(service: Api) -> None:
    names, _ = some_names(service)
    for path in (f"/v1/experiments/{names['experiment']}/events", f"/v1/trials/{names['trial']}/logs?follow=true"):
        assert service.http.head(path).status_code == 200
    followers = service.app.state.context.followers
    wait_until(lambda: not followers.count)  # the streams end, although their connections stay open


def test_an_unknown_query_parameter_is_refused_with_the_known_ones(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    for operation in operations(document, names):
        query: Query = [("unknown", "1"), *((name, "1") for name in operation.query_names for _ in range(2))]
        answer = service.http.request(operation.method, operation.path, params=query, headers=held.headers)
        if operation.facts.get("requestBody", {}).get("required"):
            assert answer.status_code in {400, 422}, operation  # the body is missing, too
        answer = service.http.request(
            operation.method, operation.path, params=query, headers=held.headers, **_body(operation)
        )
        assert (answer.status_code, the_type(answer)) == (422, "invalid"), f"{operation}: {answer.text}"
        messages = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert messages.keys() == {"unknown", *operation.query_names}, operation
        assert all(name in messages["unknown"] for name in operation.query_names), operation


def test_a_token_is_asked_for_before_anything_else_is_said(guarded: Api, settings: Settings) -> None:
    document = guarded.app.openapi()
    for names in (UNKNOWN, dict.fromkeys(UNKNOWN, "a/../b%2F")):
        for operation in operations(document, names):
            if operation.schemes and "%" not in operation.path:
                for content, query in product((b"", b"{", b"\xff", b'{"unknown": 1}'), ("", "?unknown=1")):
                    answer = guarded.http.request(operation.method, f"{operation.path}{query}", content=content)
                    assert (answer.status_code, the_type(answer)) == (401, "unauthorized"), f"{operation} {content!r}"


def test_a_token_is_asked_for_before_the_size_and_type_of_a_body(service: Api, document: dict[str, Any]) -> None:
    names, _ = some_names(service)
    for operation in operations(document, names):
        if LEASED in operation.schemes and operation.method == "POST":
            large, xml = {"content": b" " * 17_000_000}, {"content": b"<a/>", "headers": {"Content-Type": "text/xml"}}
            for body in (large, xml):
                answer = service.http.post(operation.path, **body)
                assert (answer.status_code, the_type(answer)) == (401, "unauthorized"), operation


def test_a_role_is_checked_before_the_body(guarded: Api, settings: Settings) -> None:
    database = Database(settings.database_url)
    reader = {"Authorization": f"Bearer {create_token(database, 'a reader', Role.READ)}"}
    database.close()
    answer = guarded.http.post("/v1/agents/a/claim?unknown=1", content=b"{", headers=reader)
    assert (answer.status_code, the_type(answer)) == (403, "forbidden")
    answer = guarded.http.patch("/v1/experiments/nothing", content=b"{", headers=reader)
    assert (answer.status_code, the_type(answer)) == (403, "forbidden")


@pytest.mark.parametrize("with_tokens", [False, True])
def test_what_does_not_exist_is_said_before_mistakes(settings: Settings, *, with_tokens: bool) -> None:
    headers = admin(settings) if with_tokens else {"Authorization": "Bearer of-nothing"}
    with running(changed(settings, require_tokens=with_tokens)) as service:
        document = service.app.openapi()
        for operation in operations(document, UNKNOWN):
            if 404 in operation.statuses:
                body = {"unknown": 1} if "requestBody" in operation.facts else None
                path = f"{operation.path}?unknown=1&limit=x"
                answer = service.http.request(operation.method, path, headers=headers, json=body)
                assert (answer.status_code, the_type(answer)) == (404, "not-found"), f"{operation}: {answer.text}"


def test_a_lost_lease_is_said_before_mistakes(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    held.finish("stopped")
    for operation in operations(document, names):
        if LEASED in operation.schemes and operation.method == "POST":
            answer = service.http.post(operation.path, json={"unknown": 1}, headers=held.headers)
            assert (answer.status_code, the_type(answer)) == (409, "lease-lost"), operation


def test_a_body_of_another_type_is_refused_with_the_right_ones(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    for operation in operations(document, names):
        if "requestBody" in operation.facts and operation.id != "create_package":
            headers = held.headers | {"Content-Type": "application/xml"}
            answer = service.http.request(operation.method, operation.path, content=b"<a/>", headers=headers)
            assert (answer.status_code, the_type(answer)) == (415, "unsupported-media-type"), operation
            assert "application/json" in answer.json()["detail"], operation


def test_a_compressed_body_is_refused(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    for operation in operations(document, names):
        if "requestBody" in operation.facts:
            headers = held.headers | {"Content-Encoding": "gzip"}
            answer = service.http.request(
                operation.method, operation.path, content=gzip.compress(b"{}"), headers=headers
            )
            assert (answer.status_code, the_type(answer)) == (415, "unsupported-media-type"), operation
            assert "without a coding" in answer.json()["detail"], operation


def test_names_that_are_written_twice_are_refused(service: Api, document: dict[str, Any]) -> None:
    names, held = some_names(service)
    for operation in operations(document, names):
        if "requestBody" in operation.facts and operation.id != "create_package":
            answer = service.http.request(
                operation.method,
                operation.path,
                content=b'{"twice": 1, "twice": 2}',
                headers=held.headers | {"Content-Type": "application/json"},
            )
            assert answer.status_code == 422, operation
            assert "twice in one object" in answer.json()["detail"], operation


def test_what_was_created_is_at_its_location(service: Api) -> None:
    experiments, one = "/v1/experiments", {"params": {"lr": 0.5}}
    name = a_spec()["name"]
    calls: list[tuple[str, dict[str, Any], str]] = [
        (experiments, {"json": a_spec(name=name)}, "id"),
        ("/v1/packages?filename=train.py", {"content": b"def train_fn(): ...\n"}, "size"),
        (f"{experiments}/{name}/trials", {"json": one}, "id"),
        (f"{experiments}/{name}/trials", {"json": [one, one]}, "items"),
    ]
    for path, body, field in calls:
        answer = service.http.post(path, **body)
        found = service.http.get(answer.headers["location"])
        assert (answer.status_code, found.status_code) == (201, 200), path
        if field == "size":
            assert len(found.content) == answer.json()[field]
        elif field == "id":
            assert found.json()[field] == answer.json()[field]
        else:
            assert [trial["number"] for trial in found.json()[field]] == [0, 1, 2]


def test_what_never_was_cannot_be_deleted(service: Api) -> None:
    assert the_type(service.http.delete("/v1/experiments/nothing")) == "not-found"
    name = service.create()["name"]
    service.post(f"/v1/experiments/{name}/cancel")
    assert service.http.delete(f"/v1/experiments/{name}").status_code == 204
    assert service.http.delete(f"/v1/experiments/{name}").status_code == 404


def _body(operation: Operation) -> dict[str, Any]:
    return {"json": {}} if operation.facts.get("requestBody", {}).get("required") else {}
