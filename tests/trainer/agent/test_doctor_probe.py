"""What the nodes of a real cluster say of a service that answers, one that does not, and the storage."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.stack.ports import free_port
from tests.trainer.fake_service import FakeService

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def ask(ray_address: str, services: list[str], storage: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "-m", "trainer.agent.doctor_probe", ray_address]
    asked = json.dumps({"services": services, "storage": str(storage)})
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=240, check=True)
    nodes: list[dict[str, Any]] = json.loads(ended.stdout)["nodes"]
    return nodes


def test_each_node_says_what_it_reaches(ray_address: str, tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "file").touch()
    with FakeService(str(tmp_path)).serving() as service:
        [node] = ask(ray_address, [service.url, away], tmp_path)
        [other] = ask(ray_address, [], tmp_path / "file" / "storage")
    assert node["facts"]["services"][service.url] is None
    assert "Connection refused" in node["facts"]["services"][away]
    assert (node["facts"]["storage_error"], node["error"], node["clock_ahead_seconds"]) == (None, None, 0.0)
    assert node["facts"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "file/storage cannot be written" in other["facts"]["storage_error"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
