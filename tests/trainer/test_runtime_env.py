"""Packages that pip installs for the workers of a trial, on a real node, without a network."""

import shutil
import subprocess
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.cluster.second_node import SecondNode, second_node
from tests.trainer.fake_service import FakeService
from trainer.wire import FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TRAIN = """
import ray.train
import tiny

def train_fn(config):
    ray.train.report({"epoch": 1, "version": tiny.VERSION})
"""
METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
OFFLINE: dict[str, dict[str, Any]] = {
    "pip": {"pip_install_options": ["--no-index", "--no-deps", "--disable-pip-version-check"]},
    "uv": {"uv_pip_install_options": ["--no-index", "--no-deps", "--no-cache"]},
}


def wheel(folder: Path, version: str) -> str:
    """A package of one module; returns the path of its wheel."""
    path = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": METADATA.format(version=version),
        f"{info}/WHEEL": WHEEL,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return str(path)


@pytest.fixture(scope="module")
def small_environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a virtual environment without files of its own, because Ray copies the node's whole environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib"))
    # uv looks for its program beside the module, so an environment needs its own.
    shutil.copytree(Path(sysconfig.get_path("purelib"), "uv"), site / "uv")
    shutil.copy2(Path(sysconfig.get_path("scripts"), "uv"), folder / "bin" / "uv")
    return str(folder / "bin" / "python")


@pytest.fixture
def node(service: FakeService, ray_address: str, small_environment: str) -> Iterator[SecondNode]:
    with second_node(service, ray_address, "delta", python=small_environment) as found:
        yield found


def test_pip_and_uv_install_what_a_trial_needs_and_each_environment_has_workers_of_its_own(
    service: FakeService, node: SecondNode, tmp_path: Path
) -> None:
    """The package's requirements count, too; a failing installation ends the trial with pip's own words."""
    first, second = wheel(tmp_path, "1.0"), wheel(tmp_path, "2.0")
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("train.py", TRAIN)
        files.writestr("requirements.txt", f"# ours\n{second}\n")
    package = service.add_package(archive.read_bytes(), "package.zip")

    def add(installer: str, requirements: dict[str, Any]) -> str:
        trainer = {
            "entrypoint": "train:train_fn",
            "package": package,
            "scaling": (node.only or {}) | {"num_workers": 1},  # no fork server has an environment's libraries
            "runtime_env": {installer: requirements | OFFLINE[installer]},
        }
        return service.add_trial(trainer, {}, experiment=f"x-{uuid.uuid4().hex}")  # the fake compares nothing else

    trials = (
        add("pip", {"packages": [first]}),
        add("uv", {"from_package": True}),
        add("pip", {"packages": ["nothing-of-this-name==1"]}),
    )
    for trial, version in zip(trials[:2], ("1.0", "2.0"), strict=True):
        assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]
        assert service.reports[trial][0].metrics["version"] == version
    error = service.finished(trials[2]).error
    assert error is not None
    assert error.kind == FailureKind.CANNOT_START
    assert "trainer.runtime_env could not be set up: ERROR: Could not find a version that sat" in error.message
    assert "No matching distribution found for nothing-of-this-name==1" in (error.traceback or "")
