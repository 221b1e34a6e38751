"""A client is generated from openapi.json by openapi-python-client, and drives an experiment.

The generator's dependencies conflict with the project's, so it has an environment of its own, made by `make test`.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Api

ROOT = Path(__file__).parents[3]
BIN = ROOT / ".venv/client-generator/bin"
SESSION = Path(__file__).with_name("generated_client_session.py")


@pytest.mark.slow
@pytest.mark.skipif(not BIN.exists(), reason="needs `make .venv/client-generator/.installed`")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_generated_client_drives_an_experiment(service: Api, tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_bytes(service.http.get("/openapi.json").content)
    generated = _run(
        [BIN / "openapi-python-client", "generate", "--path", document, "--meta", "none",
         "--output-path", tmp_path / "paceline_client"], tmp_path
    )  # fmt: skip
    troubles = {line for line in generated.splitlines() if line.startswith(("ERROR", "Unsupported", "Cannot"))}
    assert troubles <= {f"Unsupported content type application/{kind}" for kind in ("yaml", "zip")}, generated
    calls = {path.stem for path in (tmp_path / "paceline_client/api").glob("*/*.py")} - {"__init__"}
    operations = service.app.openapi()["paths"].values()
    assert calls == {one["operationId"] for methods in operations for one in methods.values()}
    _run([BIN / "python", SESSION, service.http.base_url], tmp_path)


def _run(command: list[object], directory: Path) -> str:
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(directory)}
    done = subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
