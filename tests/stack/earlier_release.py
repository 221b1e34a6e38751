"""Images of an earlier version of Paceline, from the commits of this repository."""

import shutil
import subprocess
from pathlib import Path

from tests.stack.compose import REPOSITORY, docker

REVISIONS = "migrations/versions"
# How an image is made, and with which packages, is that of the present version: so only Paceline itself is built.
PRESENT = ("Dockerfile", ".dockerignore", "images", "pyproject.toml", "constraints.txt")


def earlier_commit() -> str:
    """The newest commit that lacks the newest migration only."""
    wanted = _revisions("HEAD")[:-1]
    commits = _git("log", "--format=%H", "--", REVISIONS).split()
    return next(commit for commit in commits if _revisions(commit) == wanted)


def earlier_revision() -> str:
    """The number of the schema of that commit."""
    return Path(_revisions("HEAD")[-2]).name.partition("_")[0]


def build_earlier_images(images: dict[str, str], directory: Path) -> None:
    """The images by the variables of docker-compose.yml."""
    archive = directory / "earlier.tar"
    _git("archive", "--output", str(archive), earlier_commit())
    source = directory / "earlier"
    shutil.unpack_archive(archive, source)
    for name in PRESENT:
        if (REPOSITORY / name).is_dir():
            shutil.rmtree(source / name, ignore_errors=True)
            shutil.copytree(REPOSITORY / name, source / name)
        else:
            shutil.copy(REPOSITORY / name, source / name)
    for variable, target in (("PACELINE_IMAGE", "service"), ("PACELINE_NODE_IMAGE", "node")):
        docker("build", "--target", target, "--tag", images[variable], str(source))


def _revisions(commit: str) -> list[str]:
    names = _git("ls-tree", "--name-only", commit, f"{REVISIONS}/").split()
    return sorted(name for name in names if Path(name).name[0].isdigit())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
