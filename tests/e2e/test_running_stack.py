"""The stack that the demo leaves running: examples and the README's tour on it, and nothing to pages of other sites."""

import contextlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import httpx
import psutil
import pytest

from service.stack.orphan_cleanup import CleanupRecord
from tests.e2e.conftest import (
    COMMAND_SECONDS,
    REPOSITORY,
    SECRET,
    Stack,
)
from tests.processes import command_line
from trainer.ray_train.processes import setup_worker

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1800)]

TOUR = re.compile(r"^```bash\n# tour\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""The blocks of the README's tour: marked ```bash, with `# tour` as their first line. They run in one shell."""
DEFAULT_URL = "http://127.0.0.1:8000"
FOREIGN_HOSTS = ["evil.test", "10.evil.test", "192.168.evil.test:5000", "10.0.0.1", "127.0.0.1.evil.test:5000"]
get = partial(httpx.get, timeout=COMMAND_SECONDS)
SEARCH = "/api/2.0/mlflow/experiments/search"


def test_the_example_of_a_command_trains_a_shell_script(stack: Stack) -> None:
    ended = stack.paceline("submit", "examples/command/experiment.yaml", "--watch")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^experiment +command completed \(max_trials\)$", ended.stdout, re.MULTILINE)
    failed = get(f"{stack.url}/v1/experiments/command/trials", params={"status": "failed"}).json()["items"]
    assert failed == [], [get(f"{stack.url}/v1/trials/{trial['id']}").json() for trial in failed]


def test_the_example_of_datasets_streams_them_to_the_workers(stack: Stack) -> None:
    ended = stack.paceline("submit", "examples/data/experiment.yaml", "--watch")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^experiment +data completed \(max_trials\)$", ended.stdout, re.MULTILINE)
    assert stack.experiment("data")["counts"].get("failed", 0) == 0
    assert stack.experiment("data")["best"]["values"]["loss"] < 10


def test_the_example_of_a_validation_searches_by_what_only_that_knows(stack: Stack) -> None:
    ended = stack.paceline("submit", "examples/validation/experiment.yaml", "--watch")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = stack.experiment("validation")
    assert shown["counts"].get("failed", 0) == 0
    reports = get(f"{stack.url}/v1/trials/{shown['best']['id']}/reports").json()["items"]
    assert [report["step"] for report in reports] == [1, 2, 3, 4]
    assert all({"weight", "val_error"} <= report["metrics"].keys() for report in reports)
    log = get(f"{stack.url}/v1/trials/{shown['best']['id']}/logs", params={"rank": 1}).text
    assert log.splitlines() == [f"validating epoch {epoch}" for epoch in (1, 2, 3, 4)]


def test_the_readmes_tour_works_as_written(stack: Stack, tmp_path: Path) -> None:
    blocks = TOUR.findall((REPOSITORY / "README.md").read_text())
    assert blocks, "README.md has no ```bash block whose first line is `# tour`"
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    tools = Path(sys.executable).parent
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks).replace(DEFAULT_URL, stack.url)],
        cwd=tmp_path,
        env=os.environ | {"PACELINE_URL": stack.url, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "event: experiment.completed" in ended.stdout, "the search ran to its end"
    assert "space.lr.low: must be > 0 when log is true" in ended.stdout, "each mistake is reported with its path"


KEYED = """
import os
import ray.train

def train_fn(config):
    key = os.environ["KEY"]
    print("the key is", key, "and ends there")
    ray.train.report({"loss": 1.0, "note": key})
    if config["x"] > 1.5:
        raise ValueError(f"refused: {key}")
"""
KEYED_SPEC = {
    "name": "keyed",
    "space": {"x": {"type": "float", "low": 1.0, "high": 2.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "enqueue": [{"x": 1.0}, {"x": 2.0}],
    "trainer": {"entrypoint": "train:train_fn", "secrets": {"KEY": {"from_agent_env": SECRET[0]}}},
    "limits": {"max_trials": 2},
}


def test_a_secret_reaches_the_training_function_and_nothing_that_is_kept(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KEYED)
    (tmp_path / "experiment.yaml").write_text(json.dumps(KEYED_SPEC))
    stack.paceline("submit", str(tmp_path / "experiment.yaml"), "--watch")
    trials = get(f"{stack.url}/v1/experiments/keyed/trials").json()["items"]
    assert {one["number"]: one["status"] for one in trials} == {0: "completed", 1: "failed"}
    for one in trials:
        assert "the key is *** and ends there" in get(f"{stack.url}/v1/trials/{one['id']}/logs").text
    assert "ValueError: refused: ***" in next(one["reason"] for one in trials if one["number"] == 1)
    stack.wait_for_mirror()
    assert not files_with(SECRET[1].encode(), stack.data_dir)
    record = CleanupRecord.read(stack.data_dir / "up.cleanup")
    assert record
    printed = files_with(SECRET[1].encode(), Path(record.directory))
    assert printed, "Ray keeps the output of its workers"
    assert {path.name.partition("-")[0] for path in printed} == {"worker"}


NOISY = """
import random
import ray.train

def train_fn(config):
    noise = random.Random(config["seed"]).random()
    ray.train.report({"loss": config["x"] + (0 if config["seed"] == 5 else noise), "seed": config["seed"]})
"""
NOISY_SPEC = {
    "name": "noisy",
    "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "config": {"seed": 5},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "enqueue": [{"x": 0.1}, {"x": 0.9}, {"x": 0.2}],
    "trainer": {"entrypoint": "train:train_fn"},
    "limits": {"max_trials": 7, "parallelism": 2},
    "confirm": {"top": 2, "seeds": 2},
}


def test_the_winners_of_a_search_are_confirmed_with_other_seeds(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NOISY)
    (tmp_path / "experiment.yaml").write_text(json.dumps(NOISY_SPEC))
    ended = stack.paceline("submit", str(tmp_path / "experiment.yaml"), "--watch")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trials = get(f"{stack.url}/v1/experiments/noisy/trials").json()["items"]
    confirmations = [one for one in trials if one["source"] == "confirmation"]
    assert sorted((one["confirms"], one["seed"]) for one in confirmations) == [(0, 6), (0, 7), (2, 6), (2, 7)]
    for one in trials:
        [report] = get(f"{stack.url}/v1/trials/{one['id']}/reports").json()["items"]
        assert report["metrics"]["seed"] == one["seed"]
    noise = [random.Random(seed).random() for seed in (6, 7)]  # noqa: S311
    best = get(f"{stack.url}/v1/experiments/noisy/best").json()
    assert (best["number"], best["value"]) == (0, 0.1)
    assert best["confirmation"]["ranking"][0]["mean"] == pytest.approx(0.1 + sum(noise) / 2)
    assert re.search(r"^confirmed +trial 0 has mean .*Welch's t-test", ended.stdout, re.MULTILINE)
    assert "Welch's t-test" in stack.paceline("best", "noisy").stdout


def all_in(directory: Path) -> Iterator[Path]:
    """Files and directories, of which some are being created and removed; `rglob` would fail."""
    for folder, folders, files in os.walk(directory):
        yield from (Path(folder, name) for name in (*folders, *files))


def files_with(text: bytes, directory: Path) -> set[Path]:
    return {path for path in all_in(directory) if path.is_file() and text in content_of(path)}


def content_of(path: Path) -> bytes:
    """Empty for a file that has just been removed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def mode_of(path: Path) -> int:
    """0 for a link, and for what has just been removed."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISLNK(status.st_mode) else status.st_mode


def test_no_other_user_can_read_the_stacks_files(stack: Stack) -> None:
    """The test has made the data directory itself, and the demo's checkpoints are Ray's."""
    kept = [path for path in all_in(stack.data_dir) if not path.is_relative_to(stack.data_dir / "checkpoints")]
    assert len(kept) > 20
    assert not [path for path in (stack.data_dir, *kept) if mode_of(path) & 0o077]


def listening(stack: Stack) -> Iterator[tuple[str, str, int]]:
    """(process, address, port) of each TCP port, and of each UDP port that is not connected."""
    for process in stack.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker that has just ended
            for socket in process.net_connections(kind="inet"):
                if socket.status in {psutil.CONN_LISTEN, psutil.CONN_NONE} and not socket.raddr:
                    yield process.name(), socket.laddr.ip, socket.laddr.port


def is_loopback(text: str) -> bool:
    address = ip_address(text)
    return ((isinstance(address, IPv6Address) and address.ipv4_mapped) or address).is_loopback


def test_every_port_is_on_loopback(stack: Stack) -> None:
    found = set(listening(stack))
    assert {"gcs_server", "raylet"} <= {name for name, _, _ in found}
    assert not [one for one in found if not is_loopback(one[1])]


def test_rays_node_starts_what_is_needed_and_workers_without_an_import_of_ray(stack: Stack) -> None:
    commands = [" ".join(command_line(one)) for one in stack.processes()]
    assert [setup_worker.__file__ in command for command in commands if "/raylet/raylet " in command] == [True]
    unneeded = ("/monitor.py", "ray.util.client.server", "/dashboard/dashboard.py")
    assert not [command for command in commands for part in unneeded if part in command]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_reaches_neither_mlflow_nor_the_service(stack: Stack, host: str) -> None:
    for url in (f"{stack.mlflow_url}{SEARCH}?max_results=1", f"{stack.url}/v1/experiments"):
        assert get(url).status_code == 200
        assert get(url, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.test", "null"])
def test_a_page_of_another_site_changes_nothing_in_mlflow(stack: Stack, origin: str) -> None:
    url = f"{stack.mlflow_url}/api/2.0/mlflow/experiments/create"
    answer = httpx.post(
        url,
        timeout=COMMAND_SECONDS,
        content=b'{"name": "foreign"}',
        headers={"Origin": origin, "Content-Type": "text/plain"},
    )
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
