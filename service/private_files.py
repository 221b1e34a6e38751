"""Files and directories that only the service's own user can read, and what to do where one cannot be written."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REMEDIES = {
    **dict.fromkeys(DISK_FULL, "free some space there"),
    errno.EROFS: "mount its file system writable",
    errno.EACCES: "give {user} write permission",
    errno.EPERM: "give {user} write permission",
}


def remedy_or(error: OSError, other: str, user: str = "the service's user") -> str:
    """What to do where a file cannot be written: what helps against the error, if that is known, or `other`."""
    remedy = _REMEDIES.get(error.errno or 0)
    return other if remedy is None else f"{remedy.format(user=user)}, or {other}"


def restrict_new_files() -> int:
    """Have no other user read what this process and its children create. Returns the umask before."""
    return os.umask(0o777 & ~DIRECTORY_MODE)


@contextlib.contextmanager
def new_files_restricted() -> Iterator[None]:
    """As `restrict_new_files`, for a while."""
    before = restrict_new_files()
    try:
        yield
    finally:
        os.umask(before)


def create_directory(directory: Path) -> None:
    """Create it, if it does not exist, and restrict it; if it is a link, what it leads to. Raises OSError."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    restrict(directory.resolve())


def restrict(path: Path) -> None:
    """Take the access of other users away; symbolic links and what belongs to another user stay as they are.

    A directory with the sticky bit, such as /tmp, is for all users and stays as it is.
    """
    with contextlib.suppress(FileNotFoundError):  # SQLite removes its files while this looks at them
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        is_kept = stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or mode & stat.S_ISVTX
        if mode & 0o077 and not is_kept:
            path.chmod(mode & ~0o077)


def restrict_all(directory: Path, leave: Path) -> None:
    """Restrict the directory, or what it leads to, and everything in it, except what is in `leave`.

    The directory comes last: if it is restricted already, so is everything in it, and this takes no time.
    """
    if not directory.is_dir() or not stat.S_IMODE(directory.stat().st_mode) & 0o077:
        return
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if Path(parent, name) != leave]
        for name in (*directories, *files):
            restrict(Path(parent, name))
    restrict(directory.resolve())


def write_once(path: Path, content: bytes) -> bytes:
    """Write the file, unless it exists; return its content. Several processes may call this concurrently."""
    if not path.exists():
        written = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(written, path)
        written.unlink()
    return path.read_bytes()
