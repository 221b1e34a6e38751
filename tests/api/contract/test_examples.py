"""The examples in openapi.json work as they stand: each body of each call, sent with its media type."""

import json
from typing import Any

import pytest

from service.api.openapi.examples import PARAMETERS
from tests.api.contract.operations import LEASED, Operation, operations
from tests.conftest import Api

EXPERIMENT = PARAMETERS["experiment"]


def bodies(operation: Operation) -> list[tuple[str, Any]]:
    content = operation.facts.get("requestBody", {}).get("content", {})
    return [(kind, one["example"]) for kind, one in content.items() if "example" in one]


def send(service: Api, operation: Operation, kind: str, example: Any, headers: dict[str, str]) -> None:
    if kind == "multipart/form-data":
        arguments: dict[str, Any] = {"files": {name: (name, text) for name, text in example.items()}}
    else:
        content = example if isinstance(example, str) else json.dumps(example)
        arguments, headers = {"content": content}, headers | {"Content-Type": kind}
    answer = service.http.request(operation.method, operation.path, headers=headers, **arguments)
    assert answer.is_success, f"{operation} {kind}: {answer.text}"


def remove_experiment(service: Api) -> None:
    service.http.post(f"/v1/experiments/{EXPERIMENT}/cancel")
    service.http.delete(f"/v1/experiments/{EXPERIMENT}")


@pytest.mark.slow
def test_every_example_of_a_body_works(service: Api) -> None:
    names = {name: PARAMETERS[name] for name in ("experiment", "trial", "step", "package", "name")}
    found = list(operations(service.app.openapi(), names))
    [create] = [one for one in found if one.id == "create_experiment"]
    for kind, example in bodies(create)[::-1]:  # the last one, in JSON, has the space of the other examples
        remove_experiment(service)
        send(service, create, kind, example, {})
    count = 0
    for operation in found:
        for kind, example in bodies(operation) if operation.id != "create_experiment" else []:
            held = service.ask(EXPERIMENT)
            assert held
            shown = operation.facts
            path = operation.path.replace(PARAMETERS["trial"], held.trial)
            leased = held.headers if LEASED in operation.schemes else {}
            send(service, Operation(operation.method, path, shown), kind, example, leased)
            count += 1
            service.http.post(f"/v1/trials/{held.trial}/finish", json={"outcome": "stopped"}, headers=held.headers)
    assert count >= 15


@pytest.mark.slow
def test_every_example_of_a_parameter_is_taken(service: Api) -> None:
    for operation in operations(service.app.openapi(), PARAMETERS):
        examples = {one["name"]: one["example"] for one in operation.facts.get("parameters", []) if "example" in one}
        query = {name: value for name, value in examples.items() if name in operation.query_names}
        headers = {name: value for name, value in examples.items() if name in operation.header_names}
        if operation.method == "GET" and examples:
            query |= {"follow": "false"} if "follow" in operation.query_names else {}
            answer = service.http.get(operation.path, params=query, headers=headers)
            assert answer.status_code in {200, 404}, f"{operation}: {answer.text}"
