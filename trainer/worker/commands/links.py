"""Links to the files of a directory as they are now: a command may replace or remove the files meanwhile."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from trainer.worker.commands.disk_errors import naming_disk_errors
from trainer.worker.commands.snapshot import GONE, NOT_SAVED, State, files_in

LINK_ATTEMPTS = 20
"""How often the files are looked at until none is replaced meanwhile."""


@naming_disk_errors(NOT_SAVED)
def link_files(directory: Path, state: State) -> Path:
    """Return a folder with links to the files. Its parent, beside the directory, is the caller's to remove."""
    folder = Path(tempfile.mkdtemp(dir=directory.parent))
    for number in range(LINK_ATTEMPTS):
        links = folder / str(number)
        links.mkdir()
        gone = [path for path, *_ in state if not _link(directory / path, links / path)]
        if state and not gone:
            break
        state = files_in(directory)  # a file was replaced while its name was read
    return links


def remove_links(links: Path) -> None:
    """Remove what `link_files` has made. What cannot be removed goes with the attempt's temporary files."""
    shutil.rmtree(links.parent, ignore_errors=True)


def _link(path: Path, link: Path) -> bool:
    """Return False if there is no such file any more. Where the file system has no links, it is copied."""
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        link.hardlink_to(os.path.realpath(path))
    except GONE:
        return False
    except OSError:
        with contextlib.suppress(*GONE):
            shutil.copy2(path, link)
        return link.exists()
    return True
