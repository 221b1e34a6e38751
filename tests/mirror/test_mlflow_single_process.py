"""The stack's MLflow server is one process, and checks who calls it as `mlflow server` does."""

import psutil
import pytest

from tests.mirror.conftest import MlflowServer

pytestmark = pytest.mark.slow


def test_the_server_is_one_process(mlflow_server: MlflowServer) -> None:
    """It relies on a private function of MLflow; without it there would be a second process, with 190 MB."""
    assert psutil.Process(mlflow_server.pid).children() == []
