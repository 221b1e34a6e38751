"""Experiments that are changed while they run."""

from typing import Any

from tests.conftest import Api, Held


def patched(service: Api, experiment: str, status: int = 200, **patch: Any) -> Any:
    response = service.http.patch(f"/v1/experiments/{experiment}", json=patch)
    assert response.status_code == status, response.text
    return response.json()


def asked(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def ran(service: Api, name: str, value: float) -> Held:
    held = asked(service, name)
    held.report(accuracy=value)
    held.finish()
    return held


def changes(service: Api, name: str) -> list[tuple[str, Any, Any]]:
    recorded_changes = [event["data"] for event in service.events(name) if event["kind"] == "experiment.changed"]
    return [(one["field"], one["before"], one["after"]) for one in recorded_changes]
