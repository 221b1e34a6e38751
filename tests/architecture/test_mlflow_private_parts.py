"""Only one module uses what MLflow does not document, and MLflow's client still has it.

MLflow may change it in any release: then a check here names it. In production, the service logs it and works without.
"""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.utils import request_utils

from service.mirror.tracking_server.retry_after import NotingRetry, note_retry_after

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_only_one_module_uses_mlflows_undocumented_parts() -> None:
    used = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "service").rglob("*.py")
        for name in imports(path)
        if name.startswith("mlflow.utils")
    }
    assert used == {("service/mirror/tracking_server/retry_after.py", "mlflow.utils.request_utils")}


def test_request_utils_retry_is_the_class_that_the_session_of_a_call_uses(caplog: pytest.LogCaptureFixture) -> None:
    note_retry_after()
    assert request_utils.Retry is NotingRetry
    session = request_utils._get_request_session(0, 0.0, 0.0, frozenset({503}), True, True)
    assert isinstance(session.get_adapter("http://mlflow.example").max_retries, NotingRetry)
    assert caplog.messages == []


def test_a_client_without_the_undocumented_part_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(request_utils, "Retry")
    with caplog.at_level(logging.WARNING):
        note_retry_after()
    assert "hides the pauses that MLflow asks for" in caplog.text
    assert not hasattr(request_utils, "Retry")
