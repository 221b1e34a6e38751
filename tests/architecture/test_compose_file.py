"""The compose files, as far as they can be checked without a container engine (`tests/stack` runs it)."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from service.stack.components import NODE_ENVIRONMENT
from tests.conftest import Api
from tests.timeouts import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
PRODUCTION = ROOT / "docker-compose.production.yml"
FILES = sorted(ROOT.glob("docker-compose*.yml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_version_of_compose_understands_its_variables(file: Path) -> None:
    """Compose 1 knows no `${NAME:+value}`."""
    variables = re.findall(r"\$\{[^}]*\}", file.read_text())
    assert variables
    assert [one for one in variables if not re.fullmatch(r"\$\{[A-Z_]+(:?[-?][^}]*)?\}", one)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_documentation_names_each_of_its_variables(file: Path) -> None:
    given = re.findall(r"\$\{([A-Z_]+)", file.read_text())
    passed_on = re.findall(r"^ +([A-Z_]+):$", file.read_text(), re.MULTILINE)
    documented = (ROOT / "docs/operations/deployment.md").read_text()
    assert [name for name in (*given, *passed_on) if f"`{name}`" not in documented] == []


def test_its_ray_nodes_start_as_those_of_up() -> None:
    module, _, function = NODE_ENVIRONMENT["RAY_START_HOOK"].rpartition(".")
    assert callable(getattr(import_module(module), function))
    services = yaml.safe_load(FILE.read_text())["services"]
    nodes = [one for one in services.values() if "ray start" in f"{one.get('entrypoint')} {one.get('command')}"]
    assert len(nodes) == 3
    for node in nodes:
        assert NODE_ENVIRONMENT.items() <= node["environment"].items()


PAUSES = ["1", "2", "4", "8", "16", "30", "30"]
"""After each start of a Ray node that has failed."""

FAKE_RAY = """#!/bin/sh
trap "echo ended; exit" TERM
echo "$@"
echo >> {folder}/starts
test "$(wc -l < {folder}/starts)" -gt {failures} || exit 1
while :; do /bin/sleep 0.1; done
"""


@contextmanager
def ray_node(folder: Path, failures: int, pause: str) -> Iterator[subprocess.Popen[str]]:
    """The command of Ray's head, with a `ray` that fails some times, as a slow start does, and then runs until SIGTERM.

    `pause` is run in place of `sleep`.
    """
    scripts = {"ray": FAKE_RAY.format(folder=folder, failures=failures), "sleep": f"#!/bin/sh\n{pause}\n"}
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    head = yaml.safe_load(FILE.read_text())["services"]["ray-head"]
    command = [part.replace("$$", "$").replace("rm -rf /tmp/ray", "true") for part in head["entrypoint"]]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*command, *head["command"]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as node:
        try:
            yield node
        finally:
            node.terminate()


def said(node: subprocess.Popen[str], lines: int) -> list[str]:
    assert node.stdout
    return [node.stdout.readline().rstrip() for _ in range(lines)]


def test_a_ray_node_that_failed_to_start_is_started_again_in_the_same_container_after_growing_pauses(
    tmp_path: Path,
) -> None:
    """A container that ended would fail `docker compose up`, which waits for Ray's head."""
    with ray_node(tmp_path, len(PAUSES), 'echo "$1"') as node:
        lines = said(node, 2 * len(PAUSES) + 1)
        assert lines[0].startswith("start --block")
        assert "--head" in lines[0].split()
        assert set(lines[::2]) == {lines[0]}
        assert lines[1::2] == PAUSES
        assert node.stderr
        assert node.stderr.readline() == "Ray ended with exit code 1; it is started again in 1 s\n"


def test_the_pauses_are_short_again_after_a_ray_node_that_has_run_for_long(tmp_path: Path) -> None:
    look = f"echo >> {tmp_path}/looks; echo $(($(wc -l < {tmp_path}/looks) * 301))"
    (tmp_path / "date").write_text(f"#!/bin/sh\n{look}\n")
    (tmp_path / "date").chmod(0o755)
    with ray_node(tmp_path, 3, 'echo "$1"') as node:
        assert said(node, 6)[1::2] == ["1", "1", "1"]


def test_a_container_of_a_ray_node_that_is_stopped_lets_the_node_end_in_order(tmp_path: Path) -> None:
    with ray_node(tmp_path, 1, 'echo "$1"') as node:
        said(node, 3)
        node.terminate()
        assert said(node, 1) == ["ended"]
        assert node.wait() == 0


def test_a_container_of_a_ray_node_that_is_stopped_in_a_pause_ends_immediately(tmp_path: Path) -> None:
    with ray_node(tmp_path, 1, f"echo $1; exec /bin/sleep {PATIENCE_SECONDS}") as node:
        said(node, 2)
        node.terminate()
        assert node.wait() == 0
        assert said(node, 1) == [""], "what it has started has ended, too"


def test_the_agents_ray_node_is_started_again_as_the_others_are() -> None:
    services = yaml.safe_load(FILE.read_text())["services"]
    loops = [
        re.search(r"pause=1; while .* done", part)
        for part in (*services["ray-head"]["entrypoint"], *services["agent"]["command"])
    ]
    words = {re.sub(r"(ray start --block --disable-usage-stats) [^&]*&", r"\1 &", loop[0]) for loop in loops if loop}
    assert len([loop for loop in loops if loop]) == 2
    assert len(words) == 1


def test_containers_cannot_write_to_their_root_file_system() -> None:
    base, added = (yaml.safe_load(file.read_text())["services"] for file in (FILE, PRODUCTION))
    for name, service in {**added, **base}.items():
        if service.get("restart") != "no" or name in base:
            assert service["read_only"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name


def test_both_services_of_the_production_layout_differ_in_their_address_only() -> None:
    base, added = (yaml.safe_load(file.read_text())["services"] for file in (FILE, PRODUCTION))
    first, second = {**base["service"], **added["service"]}, added["service-2"]
    first["environment"] = {**base["service"]["environment"], **added["service"]["environment"]}
    del first["build"]
    assert {name for name in first["environment"] if first["environment"][name] != second["environment"][name]} == {
        "PACELINE_ADVERTISED_URL"
    }
    assert first | {"environment": None} == second | {"environment": None}


def test_user_code_in_the_production_layout_gets_no_access_to_the_service_and_its_databases() -> None:
    base, added = (yaml.safe_load(file.read_text())["services"] for file in (FILE, PRODUCTION))
    merged = {name: {**base.get(name, {}), **added.get(name, {})} for name in {*base, *added}}
    given = {
        name: {**base.get(name, {}).get("environment", {}), **added.get(name, {}).get("environment", {})}
        for name in merged
    }
    assert [name for name in merged if "PACELINE_TOKEN" in given[name]] == ["agent"]
    on_backend = {name for name, service in merged.items() if "backend" in service.get("networks", ())}
    with_password = {name for name in merged if "POSTGRES_PASSWORD" in str(given[name])}
    assert on_backend == with_password == {"postgres", "migrate", "mlflow-database", "mlflow", "service", "service-2"}
    on_default = {name for name, service in merged.items() if "default" in service.get("networks", ["default"])}
    assert on_backend & on_default == {"service", "service-2"}
    for node in ("ray-head", "ray-worker"):
        assert [name for name in given[node] if name.startswith("PACELINE_")] == []


def test_the_production_layout_has_no_password_by_default_and_none_in_a_command() -> None:
    assert "POSTGRES_PASSWORD:-" not in PRODUCTION.read_text()
    services = yaml.safe_load(PRODUCTION.read_text())["services"].values()
    assert [one["command"] for one in services if "PASSWORD" in str(one.get("command"))] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_agents_health_check_finds_its_agent(service: Api) -> None:
    command = yaml.safe_load(FILE.read_text())["services"]["agent"]["healthcheck"]["test"]
    assert command[:3] == ["CMD", "python", "-c"]
    code = command[3].replace("http://service:8000", str(service.http.base_url))

    def exit_code() -> int:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode

    assert exit_code() == 1
    service.claim("compose", 204)
    assert exit_code() == 0
