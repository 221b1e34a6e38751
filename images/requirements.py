"""Prints what an image installs, one requirement a line: `service`, or `nodes` for what Ray nodes need besides."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(target: str) -> list[str]:
    project = tomllib.loads(PROJECT.read_text())
    of_nodes = set(project["tool"]["paceline"]["images"]["only_on_ray_nodes"])
    wanted = project["project"]["dependencies"]
    return [one for one in wanted if (_name(one) in of_nodes) == (target == "nodes")]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]


if __name__ == "__main__":
    sys.stdout.writelines(f"{one}\n" for one in requirements(sys.argv[1]))
