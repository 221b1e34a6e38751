"""`paceline up`: what it says when it cannot start, what it survives, and that it leaves nothing behind."""

import fcntl
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from service.processes import accepts
from tests.e2e.conftest import PACELINE, REPOSITORY, Stack, running_stack, until

QUICKSTART = REPOSITORY / "examples/quickstart/experiment.yaml"


def refused(*arguments: str) -> str:
    """What `paceline up` says when it does not start."""
    ended = subprocess.run([*PACELINE, "up", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    return ended.stderr


def words_of(process: psutil.Process) -> list[str]:
    """Its command; empty when it has just ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.parametrize("option", ["--port", "--mlflow-port"])
def test_a_taken_port_is_named_with_the_setting_to_change(tmp_path: Path, option: str) -> None:
    ports = {"--port": "0", "--mlflow-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports[option] = str(port)
        said = refused("--data-dir", str(tmp_path), *(word for pair in ports.items() for word in pair))
    assert f"port {port} of 127.0.0.1 is already taken" in said
    assert f"`{option} {port + 1}`" in said


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused("--data-dir", str(tmp_path / "file" / "data"))
    assert f"the data directory {tmp_path}/file/data cannot be written" in said
    assert "--data-dir" in said


def test_a_second_stack_in_the_same_data_directory_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"a stack runs in {tmp_path} already" in refused("--data-dir", str(tmp_path))


@pytest.mark.slow
@pytest.mark.ray
def test_ctrl_c_amid_a_search_leaves_nothing_and_the_next_start_goes_on(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        assert stack.paceline("submit", str(QUICKSTART)).returncode == 0
        until(lambda: stack.experiment("quickstart")["counts"].get("completed", 0) > 0, "a trial has ended")
        assert stack.stop(signal.SIGINT) == 0
        assert not any(accepts("127.0.0.1", int(url.rpartition(":")[2])) for url in (stack.url, stack.mlflow_url))

    with running_stack(tmp_path) as stack:
        until(lambda: stack.experiment("quickstart")["status"] == "completed", "the search went on to its end")
        assert stack.stop(signal.SIGTERM) == 0


@pytest.mark.slow
@pytest.mark.ray
def test_a_part_that_is_killed_comes_back(stack: Stack) -> None:
    def service() -> psutil.Process | None:
        return next((one for one in stack.processes() if "serve" in words_of(one)), None)

    victim = service()
    assert victim
    victim.kill()
    until(lambda: (found := service()) is not None and found.pid != victim.pid, "another service process runs")
    until(lambda: stack.paceline("ls").returncode == 0, "the service answers again")
