"""Where the summary of an ended experiment says it can be seen in MLflow."""

from typing import Any, cast

import pytest

from service.cli.client import Client
from service.cli.terminal import watch

SERVER = "http://127.0.0.1:5000"
PAGE = f"{SERVER}/#/experiments/1/runs"
ENDED: dict[str, Any] = {"id": "x-1", "status": "completed", "mlflow_url": None, "mlflow_error": None}


class LaggingMirror:
    """A service whose mirror creates the page after `looks` looks at the experiment."""

    def __init__(self, looks: int, server: str | None = SERVER, error: str | None = None) -> None:
        self._looks, self._server, self._error = looks, server, error

    def readiness(self) -> dict[str, Any]:
        return {"mlflow_url": self._server}

    def experiment(self, _name: str) -> dict[str, Any]:
        self._looks -= 1
        return ENDED | {"mlflow_url": None if self._looks else PAGE, "mlflow_error": self._error}


def page(service: LaggingMirror, **changes: Any) -> str | None:
    return watch.mlflow_page(cast(Client, service), ENDED | changes)


@pytest.fixture(autouse=True)
def _polls_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.0)


def test_a_page_that_the_mirror_has_not_created_yet_is_waited_for() -> None:
    assert page(LaggingMirror(looks=3)) == PAGE


def test_a_page_that_exists_is_shown_at_once() -> None:
    assert page(LaggingMirror(looks=0), mlflow_url=PAGE) == PAGE


@pytest.mark.parametrize("error", ["MLflow cannot be used: timed out", None])
def test_an_experiment_without_a_page_names_the_server_and_why(
    monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    monkeypatch.setattr(watch, "MLFLOW_SECONDS", 0.0)
    shown = page(LaggingMirror(looks=-1, error=error), mlflow_error=error)
    assert shown == f"{SERVER} has no page of it yet: {error or 'its events are still being written'}"


def test_a_service_without_mlflow_names_no_page() -> None:
    assert page(LaggingMirror(looks=0, server=None)) is None
