"""A port that a dead process still holds is waited for; one that another process holds is refused with its name."""

import errno
import os
import re
import socket
import threading
from pathlib import Path

import pytest

from service.stack import ports
from service.stack.ports import free_port, is_free
from service.stack.up_options import HOST, CannotStart, Options
from tests.timeouts import PATIENCE_SECONDS


def test_a_port_that_becomes_free_soon_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill of `paceline up`: the sockets of its processes live a little longer than they."""
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    asked = threading.Event()

    def free_after_the_first_look(host: str, number: int) -> bool:
        try:
            return is_free(host, number)
        finally:
            asked.set()
            listener.close()

    monkeypatch.setattr(ports, "is_free", free_after_the_first_look)
    monkeypatch.setattr(ports, "RELEASE_SECONDS", PATIENCE_SECONDS)
    assert Options(tmp_path, port=port, mlflow=False).resolved().port == port
    assert asked.is_set()


@pytest.mark.slow
def test_a_port_that_stays_taken_names_the_process_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "RELEASE_SECONDS", 0.1)
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        expected = re.escape(f"port {port} of {HOST} is already taken by process {os.getpid()} (")
        with pytest.raises(CannotStart, match=expected):
            Options(tmp_path, port=port, mlflow=False).resolved()


def test_one_port_for_the_service_and_mlflow_is_refused(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(CannotStart, match=rf"the service and MLflow cannot both have port {port}.*--mlflow-port"):
        Options(tmp_path, port, port).resolved()
    assert Options(tmp_path, port, port, mlflow=False).resolved().port == port
    chosen = Options(tmp_path, port=0, mlflow_port=0).resolved()
    assert chosen.port != chosen.mlflow_port


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "Choose another host"), ("no-such.invalid", "cannot be used: ")],
)
def test_a_port_that_cannot_be_used_for_another_reason_is_not_called_taken(host: str, reason: str) -> None:
    said = ports.taken(host, 8000, "port", "PACELINE_PORT")
    assert reason in said
    assert "taken" not in said
    assert "--port" not in said


@pytest.mark.parametrize(("port", "proposed"), [(80, 8000), (8000, 8001), (65_535, 8000)])
def test_a_port_that_can_be_used_is_proposed_in_place_of_another(
    port: int, proposed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_why_not_free", lambda *_: PermissionError(errno.EACCES, "Permission denied"))
    said = ports.taken(HOST, port, "port", "PACELINE_PORT")
    assert f"`--port {proposed}` or PACELINE_PORT={proposed}" in said


def test_a_port_that_is_proposed_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {8000, 8001, 8002}
    error = OSError(errno.EADDRINUSE, "in use")
    monkeypatch.setattr(ports, "_why_not_free", lambda _host, port: error if port in used else None)
    monkeypatch.setattr(ports, "holder_of", lambda _port: None)
    assert "`--port 8003`" in ports.taken(HOST, 8000, "port", "PACELINE_PORT")


@pytest.mark.slow
def test_a_free_port_has_no_holder() -> None:
    assert ports.holder_of(free_port()) is None


def test_the_parts_of_a_stack_never_get_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them listens yet when the others get theirs."""
    monkeypatch.setattr(ports, "PORTS", ports.PORTS[:40])
    monkeypatch.setattr(ports, "is_free", lambda *_: True)
    monkeypatch.setattr(ports, "_given", set[int]())
    found = [free_port() for _ in range(40)]
    assert len(set(found)) == 40
    assert free_port() in found  # rather than none
