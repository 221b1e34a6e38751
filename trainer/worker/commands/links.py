"""Links to the files of a directory as they are now: a command may replace or remove the files meanwhile."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from trainer.worker.commands.snapshot import State, files_in

LINK_ATTEMPTS = 20
"""How often the files are looked at until none is replaced meanwhile."""


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


def _link(path: Path, link: Path) -> bool:
    """Return False if there is no such file any more. Where the file system has no links, it is copied."""
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        link.hardlink_to(path.resolve())
    except FileNotFoundError:
        return False
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, link)
        return link.exists()
    return True
