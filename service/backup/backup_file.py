"""A backup: one compressed tar file with the database, the packages, the logs and the key of the lease tokens.

The checkpoints are not in it: they are on a storage of their own, which is too large for one file. MLflow's data is a
mirror.
"""

import errno
import gzip
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

from sqlalchemy.exc import DBAPIError

from service import private_files
from service.backup.database_copy import check_exists, copy_database, fill_database, is_empty
from service.backup.failure import BackupFailed
from service.operations.attempts.log_file import STATE_SUFFIX
from service.operations.packages.package_store import PART_SUFFIX
from service.settings import LEASE_KEY_FILE, PROBE_PREFIX, Settings, without_password
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import ForeignSchema, SchemaState, newest_revision, revision_of, state_of

FORMAT = 1
MANIFEST, DATABASE, FILES = "manifest.json", "database", "files"
"""The members of the archive; `files/` has what was in the data directory."""

ARCHIVE = "archive"
PIECE_BYTES = 1_000_000
NO_BACKUP = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, KeyError, FileNotFoundError)
"""What reading a damaged or foreign file raises."""


@dataclass(frozen=True)
class Manifest:
    """`revision` is that of the database's schema, `database` its kind: sqlite or postgresql."""

    format: int
    created_at: str
    version: str
    revision: str
    database: str

    @classmethod
    def of(cls, database: Database, now: datetime) -> Self:
        """Raises BackupFailed for a database without a schema, or with one that this version does not work with."""
        with database.engine.connect() as connection:
            revision, state = revision_of(connection), state_of(connection)
            if state is SchemaState.FOREIGN:
                raise BackupFailed(str(ForeignSchema.of(connection)))
        if state is SchemaState.TOO_NEW:
            raise BackupFailed(
                f"the database has the schema of a later version (revision {revision}), and this one has "
                f"{newest_revision()}; use the version of the service. Nothing was written"
            )
        if revision is None:
            raise BackupFailed("the database is empty; PACELINE_DATABASE_URL and PACELINE_DATA_DIR say which it is")
        return cls(FORMAT, now.isoformat(timespec="seconds"), version("paceline"), revision, _kind(database))

    @property
    def of_later_version(self) -> str | None:
        """What this version does not know; None if it knows everything."""
        if self.format > FORMAT:
            return f"format {self.format} of backups, and this version knows format {FORMAT}"
        if self.revision > newest_revision():
            return f"revision {self.revision} of the schema, and this version has {newest_revision()}"
        return None

    @classmethod
    def of_json(cls, content: bytes) -> Self:
        """A later format may have more members. Raises ValueError and KeyError for what is no manifest."""
        given = json.loads(content)
        if not isinstance(given, dict):
            raise ValueError(f"{MANIFEST} is no object")  # noqa: TRY004 - of the file, not of a caller's argument
        known = {field.name: given[field.name] for field in fields(cls)}
        if not all(type(value) is (int if name == "format" else str) for name, value in known.items()):
            raise ValueError(f"a member of {MANIFEST} is of another type")
        return cls(**known)


def back_up(settings: Settings, file: Path, now: datetime) -> Manifest:
    """Write a backup to `file`, which must not exist. The service may run meanwhile. Raises BackupFailed and OSError.

    The database comes first: what it names is in the other files by then, and is never changed there.
    """
    if file.exists():
        raise BackupFailed(f"{file} exists already; nothing was written")
    with _opened(settings) as database, _folder_beside(file) as folder:
        check_exists(database)
        _check_data_directory(settings)
        manifest = Manifest.of(database, now)
        copy_database(database, folder / DATABASE)
        with _space_needed(folder, "written"):
            _write_archive(settings, folder, manifest)
        (folder / ARCHIVE).rename(file)
        _sync_if_possible(file.parent)
    return manifest


def restore(settings: Settings, file: Path) -> Manifest:
    """Fill an empty database and an empty data directory from a backup, or change neither.

    Raises BackupFailed and OSError.

    It reads all of the backup before it changes anything. The database comes last, so a restore that was killed leaves
    a database that is empty.
    """
    with _opened(settings) as database, _folder_beside(settings.data_dir / "restore") as folder:
        _check_empty(settings, database)
        with _space_needed(folder, "changed"):
            manifest = _unpack(file, folder, database)
        with _moved(folder / FILES, settings.data_dir):
            fill_database(database, folder / DATABASE, manifest.revision)
    return manifest


def _write_archive(settings: Settings, folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2))
    with tarfile.open(folder / ARCHIVE, "w:gz", compresslevel=6) as archive:
        for name in (MANIFEST, DATABASE):
            archive.add(folder / name, name)
        for path in _files(settings):
            _add(archive, path, f"{FILES}/{path.relative_to(settings.data_dir)}")
    _sync(folder / ARCHIVE)


@contextmanager
def _space_needed(folder: Path, what: str) -> Iterator[None]:
    """Raises BackupFailed if the disk is full. The error of writing to an open file has no path."""
    try:
        yield
    except OSError as error:
        if error.errno not in private_files.DISK_FULL:
            raise
        raise BackupFailed(
            f"{folder.parent} has no room for the backup's content ({error.strerror}); nothing was {what}. Free some "
            "space there, or choose another directory"
        ) from error


def _check_data_directory(settings: Settings) -> None:
    """A data directory that lacks the key of the lease tokens is not that of a service."""
    if not (settings.data_dir / LEASE_KEY_FILE).is_file():
        raise BackupFailed(
            f"{settings.data_dir} is not the data directory of a service: it has no file {LEASE_KEY_FILE}. Set "
            "PACELINE_DATA_DIR as the service has it; nothing was written"
        )


def _files(settings: Settings) -> Iterator[Path]:
    """All files of the data directory that belong to a backup.

    The states of logs come before the logs: a log that is copied later has at least as much as its state says.
    """
    yield settings.data_dir / LEASE_KEY_FILE
    for directory in (settings.packages_dir, settings.logs_dir):
        files = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
        kept = (one for one in files if one.suffix != PART_SUFFIX and not one.name.startswith(PROBE_PREFIX))
        yield from sorted(kept, key=lambda path: (path.suffix != STATE_SUFFIX, path))


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add the file with the size that it has now: a log may grow. One that was deleted meanwhile is left out."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return
    with opened:
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=opened), opened)


def _sync(path: Path) -> None:
    """Wait until the file or directory is on the disk, so that a power cut leaves a whole backup or none."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_possible(folder: Path) -> None:
    """Does nothing in a folder that may not be read, nor where the file system syncs files only."""
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:
            raise


def _check_empty(settings: Settings, database: Database) -> None:
    for path in (settings.packages_dir, settings.logs_dir, settings.data_dir / LEASE_KEY_FILE):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise BackupFailed(f"{path} exists already; nothing was changed. Move it away, or set PACELINE_DATA_DIR")
    if not is_empty(database):
        raise BackupFailed(
            f"the database {_address(database)} is not empty; nothing was changed. Stop all"
            " services, and restore into a new one (PACELINE_DATABASE_URL, PACELINE_DATA_DIR)"
        )


def _unpack(file: Path, folder: Path, database: Database) -> Manifest:
    if not file.is_file():
        raise BackupFailed(f"there is no file {file}")
    try:
        with gzip.open(file) as content:
            with tarfile.open(fileobj=content, mode="r|") as archive:
                archive.extractall(folder, filter=_private)  # noqa: S202 - the filter keeps it inside of the folder
            while content.read(PIECE_BYTES):  # to the end, where the checksum is
                pass
        manifest = Manifest.of_json((folder / MANIFEST).read_bytes())
        if manifest.of_later_version is None:
            _check_members(folder)
    except NO_BACKUP as error:
        raise BackupFailed(f"{file} is not a whole backup of Paceline ({error}); nothing was changed") from error
    if manifest.of_later_version:
        raise BackupFailed(
            f"{file} has {manifest.of_later_version}; nothing was changed. Restore it with the version that has "
            f"written it (Paceline {manifest.version}), or a newer one"
        )
    if manifest.database != _kind(database):
        raise BackupFailed(f"{file} is of a {manifest.database} database, and PACELINE_DATABASE_URL names another kind")
    return manifest


def _check_members(folder: Path) -> None:
    """Raises ValueError. SQLite takes an empty file for a database without tables."""
    database = folder / DATABASE
    if not (database.is_file() and database.stat().st_size and (folder / FILES).is_dir()):
        raise ValueError(f"it lacks {DATABASE} or {FILES}")


def _private(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Nothing outside of the folder, and for this user only. Raises tarfile.FilterError."""
    return tarfile.data_filter(member, folder).replace(mode=private_files.FILE_MODE)


def _kind(database: Database) -> str:
    return database.engine.dialect.name


def _address(database: Database) -> str:
    """The address has no password, which SQLAlchemy hides only beside the user."""
    return without_password(database.engine.url.render_as_string())


@contextmanager
def _moved(folder: Path, to: Path) -> Iterator[None]:
    """Move what is in the folder, over empty folders of the same names; and back if the block fails."""
    with ExitStack() as undo:
        for path in list(folder.iterdir()):
            target = to / path.name
            if target.is_dir():
                target.rmdir()
            path.rename(target)
            undo.callback(target.rename, path)
        yield
        undo.pop_all()


@contextmanager
def _opened(settings: Settings) -> Iterator[Database]:
    """Raises BackupFailed also for an outage of the database in the context."""
    database = Database(settings.database_url)
    try:
        yield database
    except DBAPIError as error:
        reason = without_password(str(error.orig))
        raise BackupFailed(f"the database {_address(database)} fails: {reason}") from error
    finally:
        database.close()


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A private folder on the file system of `path`, so that a file moves there at once."""
    with private_files.new_files_restricted():
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
