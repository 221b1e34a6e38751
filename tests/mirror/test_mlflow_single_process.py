"""The stack's MLflow server is one process, and checks who calls it as `mlflow server` does."""

from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.mirror.conftest import MlflowServer

pytestmark = pytest.mark.slow


def test_the_server_is_one_process(mlflow_server: MlflowServer) -> None:
    """It relies on a private function of MLflow; without it there would be a second process, with 190 MB."""
    assert psutil.Process(mlflow_server.pid).children() == []


def test_database_and_artifacts_are_in_a_directory_of_any_name(tmp_path: Path) -> None:
    home = tmp_path / "a?b%20c"
    home.mkdir()
    server = MlflowServer(home)
    server.start()
    try:
        client = MlflowClient(server.uri)
        run = client.create_run(client.create_experiment("digits")).info.run_id
        client.log_text(run, "a note", "note.txt")
    finally:
        server.stop()
    assert list(tmp_path.iterdir()) == [home]
    assert (home / "mlflow.db").stat().st_size
    assert [path.read_text() for path in home.rglob("note.txt")] == ["a note"]
