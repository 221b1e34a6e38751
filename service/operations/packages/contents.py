"""Checks a package before anything runs: its file name, and that workers can unpack it."""

import io
import lzma
import re
import stat
import struct
import zipfile
import zlib
from pathlib import PurePosixPath

from search.mistakes import Mistake
from service.errors import Invalid, TooLarge

MAX_FILES = 10_000
_PYTHON_FILE = re.compile(r"[A-Za-z0-9_.-]+\.py")

# What Python's zipfile raises for a broken, encrypted or unknown archive; NotImplementedError is a RuntimeError.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
    MemoryError,
)


def safe_filename(filename: str) -> str:
    """A safe name for the header of the download. The name of a zip is not kept."""
    if not filename.endswith(".py"):
        return "package.zip"
    name = PurePosixPath(filename).name
    if not _PYTHON_FILE.fullmatch(name):
        raise Invalid(
            [Mistake(("filename",), f"may have letters, digits, _, - and dots, as in train.py; not {name!r}")]
        )
    return name


def check_contents(body: bytes, filename: str, max_unpacked: int) -> list[str]:
    """The names of the files in a zip or .py file. Raises Invalid, TooLarge for more than `max_unpacked` bytes."""
    if filename.endswith(".py"):
        return [filename]
    if not zipfile.is_zipfile(io.BytesIO(body)):
        raise Invalid([Mistake(("package",), "must be a zip or, with ?filename=train.py, a .py file; it is neither")])
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            _check_members(members, max_unpacked)
            damaged = archive.testzip()
    except _UNREADABLE as error:
        raise Invalid([Mistake(("package",), f"the zip cannot be read: {error}")]) from error
    if damaged is not None:
        raise Invalid([Mistake(("package", damaged), "is damaged; create the zip again")])
    return sorted(info.filename for info in members)


def _check_members(members: list[zipfile.ZipInfo], max_unpacked: int) -> None:
    bad = [Mistake(("package", info.filename), fault) for info in members if (fault := _fault_in(info))]
    if bad:
        raise Invalid(bad)
    if len(members) > MAX_FILES:
        raise TooLarge(f"a package may have {MAX_FILES} files, this one has {len(members)}", max_files=MAX_FILES)
    unpacked = sum(info.file_size for info in members)
    if unpacked > max_unpacked:
        raise TooLarge(
            f"unpacked, a package may have {max_unpacked / 1e6:g} MB, this one has {unpacked / 1e6:g} MB",
            max_bytes=max_unpacked,
        )
    if not any(info.filename.endswith(".py") for info in members):
        raise Invalid([Mistake(("package",), "has no .py file")])


def _fault_in(info: zipfile.ZipInfo) -> str | None:
    path = PurePosixPath(info.filename.replace("\\", "/"))
    if not path.parts:
        return "has no name"
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        return "points outside the package; every path must stay below its root"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a symbolic link; include the file itself"
    return None
