"""docker-compose.yml, as far as it can be checked without a container engine (`tests/stack` runs it)."""

import re
from importlib import import_module
from pathlib import Path

import yaml

from service.stack.components import NODE_ENVIRONMENT

FILE = Path(__file__).parents[2] / "docker-compose.yml"


def test_every_version_of_compose_understands_its_variables() -> None:
    """Compose 1 knows no `${NAME:+value}`."""
    variables = re.findall(r"\$\{[^}]*\}", FILE.read_text())
    assert variables
    assert [one for one in variables if not re.fullmatch(r"\$\{[A-Z_]+(:?[-?][^}]*)?\}", one)] == []


def test_its_ray_nodes_start_as_those_of_up() -> None:
    module, _, function = NODE_ENVIRONMENT["RAY_START_HOOK"].rpartition(".")
    assert callable(getattr(import_module(module), function))
    services = yaml.safe_load(FILE.read_text())["services"]
    nodes = [one for one in services.values() if "ray start" in str(one.get("command"))]
    assert len(nodes) == 3
    for node in nodes:
        assert NODE_ENVIRONMENT.items() <= node["environment"].items()
