"""Packages of user code: stored as one file per digest, checked without running them."""

import hashlib
import io
import lzma
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from search.mistakes import Mistake
from service.errors import InsufficientStorage, Invalid, NotFound, TooLarge
from service.runtime.context import Context
from service.settings import Settings
from service.store.tables import PackageRow

UNPACKED_TO_PACKED = 20
MAX_FILES = 10_000
PYTHON_FILE = re.compile(r"[A-Za-z0-9_.-]+\.py")

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


def store_package(context: Context, body: bytes, filename: str) -> PackageRow:
    """Stores a zip or a .py file. The same bytes give the same package.

    Raises Invalid, TooLarge, InsufficientStorage.
    """
    if len(body) > context.settings.max_package_bytes:
        raise package_too_large(context.settings)
    filename = _kept_name(filename)
    files = _files_of(body, filename, context.settings.max_package_bytes * UNPACKED_TO_PACKED)
    digest = hashlib.sha256(body).hexdigest()
    _write(context.settings.packages_dir / digest, body)
    with context.database.write() as session:
        row = session.get(PackageRow, f"sha256:{digest}")
        if row is None:
            row = PackageRow(
                id=f"sha256:{digest}", filename=filename, size=len(body), files=files, created_at=context.clock()
            )
            session.add(row)
        return row


def find_package(context: Context, package_id: str) -> tuple[PackageRow, bytes]:
    """Raises NotFound."""
    with context.database.read() as session:
        row = session.get(PackageRow, package_id)
    path = context.settings.packages_dir / package_id.removeprefix("sha256:")
    if row is None or not path.is_file():
        raise NotFound(f"there is no package {package_id!r}; send it with POST /v1/packages")
    return row, path.read_bytes()


def package_too_large(settings: Settings) -> TooLarge:
    limit = settings.max_package_bytes
    return TooLarge(
        f"a package may have {limit / 1e6:g} MB; leave data and weights out and read them from shared storage"
        f" (the service's setting PACELINE_MAX_PACKAGE_BYTES is the limit)",
        max_bytes=limit,
    )


def store_files(context: Context, files: Sequence[tuple[str, bytes]]) -> PackageRow:
    """Stores one file as it is, several as a zip with all of them at its root. Raises as `store_package` does."""
    if len(files) == 1:
        filename, body = files[0]
        return store_package(context, body, filename)
    return store_package(context, _zip(files), "package.zip")


def _zip(files: Sequence[tuple[str, bytes]]) -> bytes:
    """The same files give the same bytes: the order and the times are fixed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in sorted(files):
            archive.writestr(zipfile.ZipInfo(PurePosixPath(name).name), body)
    return buffer.getvalue()


def _kept_name(filename: str) -> str:
    """A safe name for the header of the download. The name of a zip is not kept."""
    if not filename.endswith(".py"):
        return "package.zip"
    name = PurePosixPath(filename).name
    if not PYTHON_FILE.fullmatch(name):
        raise Invalid(
            [Mistake(("filename",), f"may have letters, digits, _, - and dots, as in train.py; not {name!r}")]
        )
    return name


def _files_of(body: bytes, filename: str, max_unpacked: int) -> list[str]:
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


def _write(path: Path, body: bytes) -> None:
    """Writes atomically: a crash leaves no file of this name, and a full disk no file at all."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InsufficientStorage(f"the package could not be written: {error.strerror}") from error
