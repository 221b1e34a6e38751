"""The user's package, downloaded once by the slot and unpacked once on each node."""

import logging
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import ray

from trainer.client.http import ServiceClient, download_package
from trainer.package_files import REQUIREMENTS_FILE, requirements_in
from trainer.ray_train.node_call import run_on_node
from trainer.worker.node_disk import naming_failed_disk

logger = logging.getLogger("paceline")

INSTALLERS = ("pip", "uv")


class UserPackage:
    """`folder` is the name of the unpacked package in each node's temporary directory.

    `content` is an ObjectRef to the package's bytes; it and `filename` are None without a package. `requirements` are
    those of its `requirements.txt`.
    """

    def __init__(self, slot: str) -> None:
        self.folder = f"paceline-{slot}"
        self.content: Any | None = None
        self.filename: str | None = None
        self.requirements: list[str] = []

    def download(self, client: ServiceClient, package_id: str | None, is_cancelled: Callable[[], bool]) -> None:
        """For the first attempt: all attempts of a slot have the same package.

        Raises as `download_package`, and NodeDiskFailed.
        """
        if package_id and self.content is None:
            found = download_package(client, package_id, is_cancelled)
            with naming_failed_disk("the package cannot be stored"):
                self.content = ray.put(found.content)
            self.filename = found.filename
            self.requirements = _requirements(found.content, found.filename)

    def runtime_env(self, asked_for: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ray's, for the workers of a trial. `asked_for` is `trainer.wire.RuntimeEnv` as JSON."""
        fields = {name: value for name, value in (asked_for or {}).items() if value}
        for name in INSTALLERS:
            if name in fields:
                fields[name] = _installed(fields[name], self.requirements)
        return fields

    def remove_from(self, nodes: Iterable[str]) -> None:
        """Remove what has been unpacked on these Ray nodes, as far as they answer."""
        for node in nodes:
            try:
                run_on_node(node, _remove_folder, self.folder)
            except ray.exceptions.RayError as error:
                logger.info("the package on node %s could not be removed: %s", node, error)


def _remove_folder(name: str) -> None:
    """Runs on a node; the folder is in its temporary directory."""
    shutil.rmtree(Path(tempfile.gettempdir()) / name, ignore_errors=True)


def _requirements(content: bytes, filename: str) -> list[str]:
    if filename.endswith(".py"):
        return []
    with zipfile.ZipFile(BytesIO(content)) as archive:
        if REQUIREMENTS_FILE not in archive.namelist():
            return []
        return [requirement for _, requirement in requirements_in(archive.read(REQUIREMENTS_FILE))]


def _installed(installer: Mapping[str, Any], requirements: Sequence[str]) -> dict[str, Any]:
    """As Ray takes it: without what is not set."""
    packages = [*installer["packages"], *(requirements if installer["from_package"] else ())]
    options = {name: value for name, value in installer.items() if name != "from_package" and value is not None}
    return {**options, "packages": packages}
