"""Packages of user code, stored as one file per digest."""

import contextlib
import hashlib
import io
import os
import secrets
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from service.errors import NotFound, TooLarge, not_written
from service.operations.packages.package_check import check_contents, safe_filename
from service.runtime.context import Context
from service.store.packages import has_experiment
from service.store.sql.get_or_create import get_or_create
from service.store.tables import PackageRow

UNPACKED_TO_PACKED = 20
"""A limit for the unpacked size, as a multiple of the limit for a package."""

ZIP_START = b"PK"
ZIP_NAME = "package.zip"

PART_SUFFIX = ".part"
"""Of a package that is being written."""


@dataclass(frozen=True)
class CheckedPackage:
    """A zip or a .py file, and the names of the files in it."""

    filename: str
    body: bytes
    files: list[str]


def check_package(filename: str, body: bytes, max_bytes: int) -> tuple[str, list[str]]:
    """The name under which the package is stored, and the names of its files. Raises Invalid, TooLarge."""
    if len(body) > max_bytes:
        raise package_too_large(max_bytes, len(body))
    filename = safe_filename(filename)
    return filename, check_contents(body, filename, max_bytes * UNPACKED_TO_PACKED)


def store_package(context: Context, package: CheckedPackage) -> PackageRow:
    """The same bytes give the same package. Raises InsufficientStorage.

    A Python file that is known under another name is stored in a zip, under its own name.
    """
    filename, body, files = package.filename, package.body, package.files
    digest = hashlib.sha256(body).hexdigest()
    facts = {"filename": filename, "size": len(body), "files": files, "created_at": context.clock()}
    path = context.settings.packages_dir / digest
    _write(path, body)
    with context.database.write() as session:
        row = get_or_create(session, PackageRow, f"sha256:{digest}", **facts)
    _write(path, body)  # again, if it was removed as unused meanwhile
    if row.filename != filename:
        return store_package(context, CheckedPackage(ZIP_NAME, _zip([(filename, body)]), files))
    return row


def find_package(context: Context, package_id: str) -> CheckedPackage:
    """Raises NotFound."""
    row, path = package_named(context, package_id)
    return CheckedPackage(row.filename, path.read_bytes(), row.files)


def package_named(context: Context, package_id: str) -> tuple[PackageRow, Path]:
    """The package and the file that has its content. Raises NotFound."""
    with context.database.read() as session:
        row = session.get(PackageRow, package_id)
    path = context.settings.packages_dir / package_id.removeprefix("sha256:")
    if row is None or not path.is_file():
        raise unknown_package(package_id)
    return row, path


def unknown_package(package_id: str) -> NotFound:
    return NotFound(f"there is no package {package_id!r}; send it with POST /v1/packages")


def remove_unused_package(context: Context, package_id: str, sent_before: datetime) -> bool:
    """Remove a package that no experiment uses and that was not sent since. Return whether it was removed."""
    path = context.settings.packages_dir / package_id.removeprefix("sha256:")
    with context.database.write() as session:
        row = session.get(PackageRow, package_id, with_for_update=True)
        if row is None or _was_sent(path, since=sent_before) or has_experiment(session, package_id):
            return False
        session.delete(row)
        # Under the row's lock: a caller that sends the package again waits for it, and then writes the file again.
        path.unlink(missing_ok=True)
    return True


def _was_sent(path: Path, *, since: datetime) -> bool:
    return path.exists() and path.stat().st_mtime >= since.timestamp()


def packed(files: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
    """One Python file or zip as it is; other files, such as a shell script, as a zip with all of them at its root."""
    is_package = len(files) == 1 and (files[0][0].endswith((".py", ".zip")) or files[0][1].startswith(ZIP_START))
    return files[0] if is_package else (ZIP_NAME, _zip(files))


def _zip(files: Sequence[tuple[str, bytes]]) -> bytes:
    """The same files give the same bytes: the order and the times are fixed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in sorted(files):
            archive.writestr(zipfile.ZipInfo(PurePosixPath(name).name), body)
    return buffer.getvalue()


def _write(path: Path, body: bytes) -> None:
    """Writes atomically: a crash leaves no file of this name, and a full disk no file at all.

    A file that exists gets a new time, so that it does not look old.
    """
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        with part.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise not_written("the package", error) from error


def package_too_large(limit: int, size: int | None = None) -> TooLarge:
    """`size`: that of the package, if it is known."""
    known = "" if size is None else f", this one has {size / 1e6:.6g} MB"
    return TooLarge(
        f"a package may have at most {limit / 1e6:g} MB{known}; leave data and weights out and read them from "
        "shared storage (the service's setting PACELINE_MAX_PACKAGE_BYTES is the limit)",
        max_bytes=limit,
    )
