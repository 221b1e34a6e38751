"""The stack's components, with other programs in place of theirs."""

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from service.stack import components
from service.stack.http_checks import AGENT_NAME
from service.stack.orphan_cleanup import PREFIX, CleanupRecord
from service.stack.ports import free_port
from service.stack.process_tags import new_tag
from service.stack.supervisor import Component
from service.stack.up_options import Options
from tests.timeouts import wait_until


class Agents(BaseHTTPRequestHandler):
    """A service that knows these agents, and has kept the access token of the last call."""

    items: ClassVar[list[dict[str, str]]] = []
    authorization: ClassVar[str | None] = None

    def do_GET(self) -> None:
        type(self).authorization = self.headers["Authorization"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"items": self.items}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[tuple[int, type[Agents]]]:
    """Its port, and what it answers."""
    handler = type("Handler", (Agents,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield server.server_port, handler
        server.shutdown()


def stack(data_dir: Path, port: int = 1, token: str | None = None) -> dict[str, Component]:
    """The components by name; Ray's directory does not exist."""
    options = Options(data_dir, port, mlflow_port=1, cpus=1, token=token)
    record = CleanupRecord(new_tag(), str(data_dir / f"{PREFIX}ray"))
    return {one.name: one for stage in components.stages_of(options, record) for one in stage}


def test_rays_directory_is_created_again_when_it_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "module_command", lambda *_: [sys.executable, "-c", ""])
    ray = stack(tmp_path)["ray"]
    ray.start()
    ray.child.kill()
    assert (tmp_path / f"{PREFIX}ray").stat().st_mode & 0o777 == 0o700


def test_the_agent_is_asked_for_with_the_token_of_the_options(
    tmp_path: Path, service: tuple[int, type[Agents]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, answers = service
    monkeypatch.setenv("PACELINE_TOKEN", " pl_token\n")
    assert not stack(tmp_path, port, "pl_token")["agent"].is_ready()
    assert answers.authorization == "Bearer pl_token"


def local(seen_at: str) -> list[dict[str, str]]:
    return [{"name": AGENT_NAME, "last_seen_at": seen_at}]


@pytest.mark.parametrize("year", [2000, 3000])
def test_an_agent_that_is_heard_again_is_connected_whatever_the_clock_says(
    tmp_path: Path, service: tuple[int, type[Agents]], year: int
) -> None:
    """The clock was set forward or back after the agent's start, or before."""
    port, answers = service
    agent = stack(tmp_path, port)["agent"]
    answers.items = local(f"{year}-01-01T00:00:00+00:00")
    assert not agent.is_ready()
    assert not agent.is_ready()
    answers.items = local(f"{year}-01-01T00:00:02+00:00")
    assert agent.is_ready()


def test_an_agent_that_is_heard_for_the_first_time_is_connected(
    tmp_path: Path, service: tuple[int, type[Agents]]
) -> None:
    port, answers = service
    agent = stack(tmp_path, port)["agent"]
    assert not agent.is_ready()
    answers.items = local("2000-01-01T00:00:02+00:00")
    assert agent.is_ready()


def test_an_agent_that_was_heard_before_the_service_answers_is_connected(
    tmp_path: Path, service: tuple[int, type[Agents]]
) -> None:
    port, answers = service
    agent = stack(tmp_path, port)["agent"]
    answers.items = local(datetime.now(UTC).isoformat())
    assert agent.is_ready()


class Healthy(Agents):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.mark.parametrize("name", ["service", "mlflow"])
def test_an_answer_of_another_program_does_not_make_a_component_ready(tmp_path: Path, name: str) -> None:
    """The second of two stacks that start together would take the first one's service for its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        options = Options(tmp_path, server.server_port, mlflow_port=server.server_port, cpus=1)
        record = CleanupRecord(new_tag(), str(tmp_path / f"{PREFIX}ray"))
        parts = {one.name: one for stage in components.stages_of(options, record) for one in stage}
        try:
            assert not parts[name].is_ready()
            is_healthy = parts[name].is_healthy
            assert is_healthy
            assert not is_healthy()
        finally:
            server.shutdown()


def test_a_component_whose_own_process_answers_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    program = """
import sys, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
    monkeypatch.setattr(components, "module_command", lambda *_: [sys.executable, "-c", program, str(port)])
    service = stack(tmp_path, port)["service"]
    service.start()
    try:
        wait_until(service.is_ready)
    finally:
        service.child.kill()
