"""`paceline submit` of code that the user may not read: a sentence with the path, and nothing is left out silently."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import SPEC, Ended, Run

pytestmark = pytest.mark.slow

WITHOUT_ROOTS_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Root reads everything, also what its mode forbids."""

ENTER, LIST, NOTHING = 0o300, 0o400, 0o000


@contextmanager
def allowed(folder: Path, mode: int) -> Iterator[None]:
    folder.chmod(mode)
    try:
        yield
    finally:
        folder.chmod(0o700)


def submit_as_a_user(url: str, project: Path) -> Ended:
    command = [*WITHOUT_ROOTS_RIGHTS, sys.executable, "-m", "service.cli", "submit", str(project / "experiment.yaml")]
    ended = subprocess.run(command, env=os.environ | {"PACELINE_URL": url}, capture_output=True, text=True, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def check_refused(ended: Ended, path: Path, why: str) -> None:
    assert ended.err.startswith(f"error: '{path}' cannot be packed: {why}. ")
    assert "--code PATH" in ended.err
    assert ended.code == 2


@pytest.mark.parametrize("mode", [ENTER, LIST, NOTHING])
def test_a_folder_that_cannot_be_read_is_named(url: str, project: Path, mode: int) -> None:
    (project / "data").mkdir()
    (project / "data" / "labels.csv").write_text("a,b")
    with allowed(project / "data", mode):
        ended = submit_as_a_user(url, project)
    assert ended.err.startswith(f"error: '{project / 'data'}")
    assert "cannot be packed: Permission denied. " in ended.err
    assert ended.code == 2


def test_a_link_into_a_folder_that_cannot_be_entered_is_named(
    url: str, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "labels.csv").write_text("a,b")
    (project / "labels.csv").symlink_to(elsewhere / "labels.csv")
    with allowed(elsewhere, NOTHING):
        check_refused(submit_as_a_user(url, project), project / "labels.csv", "Permission denied")


def test_a_folder_of_a_spec_that_cannot_be_listed_is_named(url: str, project: Path) -> None:
    trainer = {"kind": "command", "command": ["python", "train.py"]}
    (project / "experiment.yaml").write_text(yaml.safe_dump(SPEC | {"trainer": trainer}))
    with allowed(project, ENTER):
        check_refused(submit_as_a_user(url, project), project, "Permission denied")


def test_a_link_whose_target_is_too_long_is_named(run: Run, project: Path) -> None:
    (project / "latest").symlink_to("x" * 300)
    check_refused(run("submit", str(project / "experiment.yaml")), project / "latest", "File name too long")
