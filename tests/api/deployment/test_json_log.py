"""A service process whose log is JSON: each line that it writes is one object, whatever happens."""

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.api.deployment.serve_command import JSON, command, serving
from tests.conftest import a_spec

NODE = {"total": {"CPU": 8}, "free": {"CPU": 8}}
TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}

Line = dict[str, Any]


def parsed(output: str) -> list[Line]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.slow
def test_every_line_of_a_service_is_an_object_and_shows_no_token(tmp_path: Path) -> None:
    data_dir, output = tmp_path / "data", tmp_path / "log"
    env = os.environ | JSON | {"PACELINE_DATA_DIR": str(data_dir)}
    created = subprocess.run(
        command("token", "create", "me", "--role", "admin"), env=env, capture_output=True, text=True, check=True
    )
    token = next(word for word in created.stdout.split() if word.startswith("pl_"))
    with serving(data_dir, output) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get(f"/v1/experiments/{token}?token={token}").status_code == 404
        experiment = client.post("/v1/experiments", json=a_spec(name="a", trainer=TORCH)).json()["id"]
        assignment = client.post("/v1/agents/here/claim", json={"request_id": "1", "nodes": [NODE]}).json()
        lease = assignment["lease"]["token"]
        path, held = f"/v1/trials/{assignment['trial']}", {"Authorization": f"Bearer {lease}", "X-Request-ID": "mine"}
        report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}}]}
        assert client.post(f"{path}/reports", json=report, headers=held).status_code == 200
        with sqlite3.connect(data_dir / "paceline.db") as database:
            database.execute("UPDATE experiments SET spec = '{}'")
        failed = client.get("/v1/experiments/a").json()
    lines = parsed(output.read_text())
    assert {line["process"] for line in lines} == {"service"}
    assert {"uvicorn.error", "service.api.http.request_log"} <= {line["logger"] for line in lines}
    [reported] = [line for line in lines if line.get("request") == "mine"]
    ids = {"experiment": experiment, "trial": assignment["trial"], "attempt": 1}
    assert {name: reported[name] for name in ids} == ids
    errors = [line for line in lines if line.get("request") == failed["request"] and "exception" in line]
    assert [(line["level"], line["experiment"]) for line in errors] == [("ERROR", experiment)] * len(errors)
    assert errors
    assert [secret for secret in (token, lease) if secret in output.read_text()] == []


@pytest.mark.slow
def test_why_a_service_does_not_start_is_an_object_too(tmp_path: Path) -> None:
    database = {"PACELINE_DATABASE_URL": "postgresql+psycopg://me:s3cr3t@127.0.0.1:1/x"}
    env = os.environ | JSON | database | {"PACELINE_DATA_DIR": str(tmp_path)}
    ended = subprocess.run(command("serve"), env=env, capture_output=True, text=True, check=False)
    output = ended.stdout + ended.stderr
    assert ended.returncode
    assert parsed(output)[-1]["level"] in {"ERROR", "CRITICAL"}
    assert "s3cr3t" not in output
