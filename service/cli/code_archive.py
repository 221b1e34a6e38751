"""The code that goes with an experiment: one file as it is, or a folder as a reproducible zip."""

import errno
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import IO, BinaryIO, NoReturn

from service.settings import DATABASE_FILE, LEASE_KEY_FILE

EXCLUDED_FOLDERS = frozenset({"__pycache__", "node_modules", "paceline-data", "mlruns", "build", "dist"})
DATA_DIRECTORY_FILES = (LEASE_KEY_FILE, DATABASE_FILE)
"""Each of them marks a data directory of the service, whose secrets no node may get."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip. All entries have it, so that the same files give the same bytes and the same package."""

MAX_FOLDER_BYTES = 2_000_000_000
"""A larger folder holds data, and is refused before it is packed. The service's own limit is lower."""

PIECE_BYTES = 65_536


class CannotPack(Exception):
    """Why the code cannot be sent, and what to do."""


@dataclass(frozen=True)
class Code:
    filename: str
    content: BinaryIO


@contextmanager
def packed(path: Path) -> Iterator[Code]:
    """A folder is packed into a temporary file, since it may be larger than the memory.

    Raises CannotPack for what does not exist or cannot be read, and for a folder that is too large or not code.
    """
    with _reading(path):
        is_folder = path.is_dir()
        content = _zipped(path) if is_folder else _opened(path)
    with content:
        yield Code("package.zip" if is_folder else path.name, content)


def folder_with_module(spec_file: Path, entrypoint: str) -> Path | None:
    """Return the spec's folder when it holds the entrypoint's module; None when the module is installed elsewhere.

    A link that cannot be followed counts, too: `packed` names it.
    """
    folder = spec_file.parent
    top = entrypoint.partition(":")[0].partition(".")[0]
    found = top and (os.path.lexists(folder / f"{top}.py") or os.path.isdir(folder / top))  # noqa: PTH112 - never raises
    return folder if found else None


def folder_with_file(spec_file: Path, arguments: Sequence[str]) -> Path | None:
    """Return the spec's folder when a word of a command names a file, folder or module in it, else None.

    Raises CannotPack for a folder that cannot be listed.
    """
    folder = spec_file.parent
    words = [word for argument in arguments for word in argument.split()]
    values = [word.partition("=")[2] for word in words]
    named = {part for word in (*words, *values) for part in PurePath(word).parts[:1]}
    with _reading(folder):
        if any(path.name in named for path in folder.iterdir()):
            return folder
    modules = (word for option, word in pairwise(words) if option in {"-m", "--module"})  # of Python and of torchrun
    return folder if any(folder_with_module(spec_file, module) for module in modules) else None


def largest_files(folder: Path, count: int = 3) -> str:
    """`images.npy (2.0 MB), train.py (0.1 MB)`: of the files that `packed` would send. Raises CannotPack."""
    with _reading(folder):
        sizes = _sizes(folder)
    largest = sorted(sizes, key=lambda file: -sizes[file])[:count]
    return ", ".join(f"{file.relative_to(folder)} ({sizes[file] / 1e6:.1f} MB)" for file in largest)


def linked_folders(folder: Path) -> list[str]:
    """The links to folders, which `packed` leaves out: most lead to data, and some lead back. Raises CannotPack."""
    with _reading(folder):
        found = [here / name for here, folders, _ in _walk(folder) for name in folders] if folder.is_dir() else []
        return sorted(str(path.relative_to(folder)) for path in found if path.is_symlink())


def files_from_elsewhere(folder: Path) -> dict[str, str]:
    """The links to files that are not sent themselves, each with its target: `packed` has its content.

    They are outside of the folder, or left out of it, such as `.env`. Raises CannotPack.
    """
    with _reading(folder):
        files = sorted(_files(folder)) if folder.is_dir() else []
        links = [file for file in files if file.is_symlink()]
        inside = os.path.realpath(folder)
        sent = {os.path.join(inside, file.relative_to(folder)) for file in files}  # noqa: PTH118 - as realpath has it
        targets = {str(link.relative_to(folder)): os.path.realpath(link) for link in links}
        return {link: target for link, target in targets.items() if target not in sent}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises CannotPack for what the file system refuses: at this path, or at the one that the error names."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:  # of writing the archive
            where = tempfile.gettempdir()
            raise CannotPack(f"{where} has no room for the packed code; free some, or set TMPDIR") from error
        named = str(getattr(error, "filename", None) or path)
        why = getattr(error, "strerror", None) or error
        raise CannotPack(
            f"{named!r} cannot be packed: {why}. Remove it, make it readable, have its name begin with a dot to leave "
            "it out, or choose what to send: --code PATH"
        ) from error


def _check_purpose(folder: Path) -> None:
    if _is_data_directory(folder):
        raise CannotPack(
            f"{folder} is a data directory of the service, with its keys and its database. Keep the code in a folder "
            "of its own, or choose what to send: --code PATH"
        )


def _check_size(folder: Path) -> None:
    total = sum(_sizes(folder).values())
    if total > MAX_FOLDER_BYTES:
        raise CannotPack(
            f"{folder} has {total / 1e9:.1f} GB, too much for code; the largest files: {largest_files(folder)}. Keep "
            "data elsewhere, or choose what to send: --code PATH"
        )


def _sizes(folder: Path) -> dict[Path, int]:
    """In bytes, without links to files that do not exist: `_zipped` names those."""
    return {file: file.stat().st_size for file in _files(folder) if file.exists()}


def _opened(file: Path) -> BinaryIO:
    if not file.is_file():
        raise CannotPack(f"there is no file or folder {file}")
    return file.open("rb")


def _zipped(folder: Path) -> BinaryIO:
    _check_purpose(folder)
    _check_size(folder)
    with ExitStack() as undo:
        archive = undo.enter_context(tempfile.TemporaryFile())
        _zip_into(archive, folder)
        archive.seek(0)
        undo.pop_all()
        return archive


def _zip_into(file: BinaryIO, folder: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(_files(folder)):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with _reading(path), path.open("rb") as content:
                size = _size_to_pack(path, content)
                with archive.open(entry, "w") as member:
                    _copy(content, member, size)


def _size_to_pack(path: Path, content: BinaryIO) -> int:
    """Raises CannotPack for a file that has grown since `_check_size`: a zip without larger numbers has 2 GiB."""
    size = os.fstat(content.fileno()).st_size
    if size > MAX_FOLDER_BYTES:
        raise CannotPack(
            f"{path} has grown to {size / 1e9:.1f} GB meanwhile, too much for code. Keep data elsewhere, or choose "
            "what to send: --code PATH"
        )
    return size


def _copy(content: BinaryIO, to: IO[bytes], size: int) -> None:
    """Copies no more than `size`: a file that is written meanwhile, such as a log, may have no end."""
    while size and (piece := content.read(min(size, PIECE_BYTES))):
        to.write(piece)
        size -= len(piece)


def _files(folder: Path) -> Iterator[Path]:
    for here, _, names in _walk(folder):
        shown = (here / name for name in names if not name.startswith(".") and not name.endswith(".pyc"))
        yield from (path for path in shown if path.is_file() or _leads_nowhere(path))  # no pipes and sockets


def _leads_nowhere(path: Path) -> bool:
    """Whether it is a link that cannot be followed, which is named when it is opened."""
    return path.is_symlink() and not path.exists()


def _walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder that is not excluded, with the names of the folders and of the other things in it."""
    for directory, folders, names in os.walk(folder, onerror=_raise):
        here = Path(directory)
        folders[:] = [name for name in folders if not _is_excluded(here / name)]
        yield here, folders, names


def _raise(error: OSError) -> NoReturn:
    """As `onerror` of `os.walk`, which otherwise skips the folders that it cannot list."""
    raise error


def _is_excluded(folder: Path) -> bool:
    """Hidden folders, caches, build output; and virtual environments and data directories under any name.

    A link is judged by its name alone: it is not followed, but `linked_folders` has it.
    """
    name = folder.name
    excluded = name.startswith(".") or name in EXCLUDED_FOLDERS or name.endswith(".egg-info")
    return excluded or (not folder.is_symlink() and _is_environment_or_data(folder))


def _is_environment_or_data(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists() or _is_data_directory(folder)


def _is_data_directory(folder: Path) -> bool:
    return any((folder / name).exists() for name in DATA_DIRECTORY_FILES)
