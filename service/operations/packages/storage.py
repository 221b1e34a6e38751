"""Packages of user code, stored as one file per digest."""

import hashlib
import io
import os
import secrets
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from service.errors import InsufficientStorage, NotFound, TooLarge
from service.operations.packages.contents import check_contents, safe_filename
from service.runtime.context import Context
from service.settings import Settings
from service.store.tables import PackageRow

UNPACKED_TO_PACKED = 20
"""A limit for the unpacked size, as a multiple of the limit for a package."""


def store_package(context: Context, body: bytes, filename: str) -> PackageRow:
    """Stores a zip or a .py file. The same bytes give the same package.

    Raises Invalid, TooLarge, InsufficientStorage.
    """
    if len(body) > context.settings.max_package_bytes:
        raise package_too_large(context.settings)
    filename = safe_filename(filename)
    files = check_contents(body, filename, context.settings.max_package_bytes * UNPACKED_TO_PACKED)
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
