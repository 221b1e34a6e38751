"""Each request has an id, which its answer, its errors and the lines of the service's log have."""

import logging
import socket
from typing import Any

import pytest
from sqlalchemy import text

from service.operations.reports import ingest
from service.operations.reports.curve import add_point
from tests.conftest import Api
from tests.process_log import Line, logged
from tests.timeouts import wait_until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def line_of(lines: list[Line], request: str) -> Line:
    """The line of the whole request, which comes after its answer."""
    [line] = wait_until(lambda: [one for one in lines if one.get("request") == request and "status" in one])
    return line


def test_a_clients_own_id_is_kept(service: Api) -> None:
    answer = service.http.get("/v1/experiments/nope", headers={"X-Request-ID": "run-7:a"})
    assert answer.headers["X-Request-ID"] == answer.json()["request"] == "run-7:a"


@pytest.mark.parametrize("given", [None, "", "two words", "é", 'a"b', "x" * 129])
def test_an_id_is_made_where_the_client_gives_none_that_can_be_used(service: Api, given: str | None) -> None:
    headers = {} if given is None else {"X-Request-ID": given.encode()}
    ids = [service.http.get("/healthz", headers=headers).headers["X-Request-ID"] for _ in range(2)]  # type: ignore[arg-type]
    assert len({*ids, given}) == 3
    assert all(one.isalnum() for one in ids)


def test_what_is_refused_before_it_is_a_request_has_an_id_too(service: Api) -> None:
    address = service.http.base_url.host, service.http.base_url.port or 0
    with logged("service") as lines, socket.create_connection(address) as client:
        client.sendall(b"NO HTTP\r\n\r\n")
        answer = client.makefile("rb").read().decode()
    [line] = lines
    assert f"x-request-id: {line['request']}\r\n" in answer
    assert f'"request": "{line["request"]}"' in answer


def test_the_lines_of_a_trials_calls_name_it(service: Api) -> None:
    experiment = service.create(trainer={"kind": "torch", "entrypoint": "train:train_fn"})
    with logged("service") as lines:
        held = service.claim(agent="a-1")
        assert held
        ids = {"experiment": experiment["id"], "trial": held.trial, "attempt": 1}
        requests = []
        for what, body in (
            ("reports", {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}}]}),
            ("heartbeat", {}),
            ("logs", {"rank": 0, "offset": 0, "text": "hello\n"}),
            ("finish", {"outcome": "completed", "next": True}),
        ):
            answer = service.http.post(f"/v1/trials/{held.trial}/{what}", json=body, headers=held.headers)
            requests.append(answer.headers["X-Request-ID"])
        found = [line_of(lines, request) for request in requests]
    claim = next(line for line in lines if line.get("agent") == "a-1")
    for line in (claim, *found):
        assert {name: line.get(name) for name in ids} == ids, line
        assert line["level"] == "DEBUG"
    assert held.headers["Authorization"].split()[1] not in str(lines)


def test_a_request_is_no_line_at_the_default_level(service: Api) -> None:
    with logged("service", logging.INFO) as lines:
        service.get("/healthz")
        service.get("/v1/experiments/nope", 404)
    assert lines == []


def test_an_experiments_name_becomes_its_id(service: Api) -> None:
    created = service.create(name="by-name")
    with logged("service") as lines:
        request = service.http.get("/v1/experiments/by-name").headers["X-Request-ID"]
        assert line_of(lines, request)["experiment"] == created["id"]


def test_an_unhandled_error_is_found_by_the_id_in_its_answer(service: Api) -> None:
    created = service.create()
    token = "q0P-3_rT" * 4
    with service.app.state.context.database.engine.begin() as connection:
        connection.execute(text("UPDATE experiments SET spec = '{}'"))
    with logged("service") as lines, logged("uvicorn") as uvicorns:
        path = f"/v1/experiments/{created['name']}"
        answer = service.http.get(path, headers={"Authorization": f"Bearer {token}"})
        wait_until(lambda: uvicorns)
    assert answer.status_code == 500
    assert answer.headers["X-Request-ID"] == answer.json()["request"]
    error = next(line for line in lines if line["level"] == "ERROR")
    for line in (error, uvicorns[0]):
        assert line["request"] == answer.json()["request"]
        assert line["experiment"] == created["id"]
        assert "KeyError: 'objectives'" in line["exception"]
    assert token not in str(lines + uvicorns)


def test_the_lines_of_the_thread_that_stores_all_reports_name_the_call(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_and_add(*arguments: Any) -> Any:
        logging.getLogger("service.test").warning("a report is stored")
        return add_point(*arguments)

    monkeypatch.setattr(ingest, "add_point", log_and_add)
    experiment = service.create()
    held = [service.ask(experiment["name"]) for _ in range(2)]
    with logged("service.test") as lines:
        for number, one in enumerate(held):
            assert one
            report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}}]}
            headers = {**one.headers, "X-Request-ID": f"call-{number}"}
            service.post(f"/v1/trials/{one.trial}/reports", json=report, headers=headers)
    assert [(line["request"], line["trial"], line["experiment"]) for line in lines] == [
        (f"call-{number}", one.trial, experiment["id"]) for number, one in enumerate(held) if one
    ]
