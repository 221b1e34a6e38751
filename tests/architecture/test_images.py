"""The images, as far as they can be checked without a container engine (`tests/stack` builds them)."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES_OF_NODES = {"grpcio": "grpc", "ray": "ray", "torch": "torch", "virtualenv": "virtualenv"}

SMALL_SEARCH = """
import sys
sys.modules |= dict.fromkeys({absent!r})
from service.settings import Settings
from tests.conftest import running
settings = Settings.from_env({{"PACELINE_DATA_DIR": {directory!r}}})
settings.prepare_directories()
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
database = Database(settings.database_url)
upgrade(database)
database.close()
search = {{"sampler": "tpe", "seed": 7, "options": {{"n_startup_trials": 1}}}}
with running(settings) as api:
    name = api.create(search=search, limits={{"max_trials": 3}})["name"]
    for _ in range(3):
        held = api.ask(name)
        held.report(accuracy=held.assignment["params"]["lr"])
        held.finish()
    print(api.get(f"/v1/experiments/{{name}}")["counts"]["completed"])
"""


def requirements(target: str) -> list[str]:
    command = [sys.executable, "images/requirements.py", target]  # as in the Dockerfile
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_two_images_have_all_dependencies_between_them() -> None:
    assert sorted(requirements("service") + requirements("nodes")) == sorted(PROJECT["project"]["dependencies"])
    left_out = PROJECT["tool"]["paceline"]["images"]["only_on_ray_nodes"]
    assert len(requirements("nodes")) == len(left_out)
    assert set(left_out) == set(MODULES_OF_NODES)


@pytest.mark.slow
def test_the_service_runs_a_search_without_the_packages_of_ray_nodes(tmp_path: Path) -> None:
    code = SMALL_SEARCH.format(absent=[*MODULES_OF_NODES.values()], directory=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3"], done.stderr
