"""Run in a process of its own, whose environment has the packages of `test_plugins`: prints what the API answers."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from service.app.application import create_app
from service.cli.upgraded_database import upgraded_database
from service.settings import Settings

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "depth": {"type": "int", "low": 1, "high": 9},
    "act": {"type": "categorical", "choices": ["relu", "gelu"]},
}

LATE = ("late", "exiting")
FAILING = ("careless", "quitting")


def spec(name: str, **parts: Any) -> dict[str, Any]:
    objectives = [{"metric": "loss", "direction": "minimize"}]
    return {"name": name, "space": SPACE, "objectives": objectives, "trainer": {"kind": "external"}, **parts}


def main() -> None:
    logging.basicConfig(stream=sys.stderr)
    settings = Settings.from_env({"PACELINE_DATA_DIR": sys.argv[1]})
    with upgraded_database(settings):
        pass
    bodies = json.loads(Path(sys.argv[2]).read_text())
    found: dict[str, Any] = {}
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as http:
        for name, parts in bodies.items():
            answer = http.post("/v1/experiments", json=spec(name, **parts))
            found[name] = answer.json()
            if answer.status_code == 201:
                found[name]["trials"] = [_ran(http, name) for _ in range(6)]
        found["listed"] = [one["name"] for one in http.get("/v1/experiments?limit=100").json()["items"]]
        found["changed"] = {
            name: http.patch(f"/v1/experiments/{name}", json={"priority": 3}).status_code for name in found["listed"]
        }
        found["previewed"] = http.post(
            "/v1/spaces/preview", json={"space": SPACE, "search": {"sampler": "annealing"}, "n": 3}
        ).json()
        found["after"] = {name: _afterwards(http, name, asks=not bodies) for name in found["listed"]}
        found["moody"] = {name: _ended(http, name, bodies[name]) for name in bodies if name.startswith("moody")}
        found["refused"] = [
            *(_mistakes(http, "/v1/spaces/preview", {"space": SPACE, **bodies[name]}) for name in LATE if bodies),
            *(_mistakes(http, "/v1/experiments/own/replay", bodies[name]) for name in FAILING if bodies),
        ]
    print(json.dumps(found))  # noqa: T201


def _mistakes(http: TestClient, path: str, body: dict[str, Any]) -> Any:
    """What the call is refused for."""
    return http.post(path, json=body).json().get("errors")


def _afterwards(http: TestClient, name: str, *, asks: bool) -> dict[str, Any]:
    """The experiment when one more trial was asked for, if any, and its limits were changed."""
    if asks:
        http.post(f"/v1/experiments/{name}/ask")
    limits = http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trials": 99}})
    shown = http.get(f"/v1/experiments/{name}").json()
    told = ("status", "end_reason", "end_detail", "waiting_for", "sampler")
    return {
        "changed": limits.status_code,
        "warnings": [one["message"] for one in shown["warnings"]],
        **{field: shown[field] for field in told},
    }


def _ended(http: TestClient, name: str, rule: dict[str, Any]) -> dict[str, Any]:
    """How the calls that end an experiment and show it are answered."""
    calls = {
        "replayed": http.post(f"/v1/experiments/{name}/replay", json=rule["early_stopping"]),
        "stopped": http.post(f"/v1/experiments/{name}/stop"),
        "shown": http.get(f"/v1/experiments/{name}"),
        "trials": http.get(f"/v1/experiments/{name}/trials"),
    }
    statuses = [one["status"] for one in calls["trials"].json()["items"]]
    return {**{call: answer.status_code for call, answer in calls.items()}, "statuses": statuses}


def _ran(http: TestClient, name: str) -> dict[str, Any]:
    """A trial that reports the same value until it is stopped, at most nine times."""
    held = http.post(f"/v1/experiments/{name}/ask")
    if held.status_code != 200:
        return {"refused": held.json()}
    lease = {"Authorization": f"Bearer {held.json()['lease']['token']}"}
    trial, params = held.json()["trial"], held.json()["params"]
    for sequence in range(9):
        report = {"reports": [{"sequence": sequence, "metrics": {"loss": params["lr"]}}]}
        answer = http.post(f"/v1/trials/{trial}/reports", json=report, headers=lease)
        answer.raise_for_status()
        if answer.json()["decision"] == "stop":
            break
    outcome = "stopped" if answer.json()["decision"] == "stop" else "completed"
    http.post(f"/v1/trials/{trial}/finish", json={"outcome": outcome}, headers=lease).raise_for_status()
    return {"params": params, "reports": sequence + 1, "reason": answer.json()["reason"]}


if __name__ == "__main__":
    main()
