"""Downloads an archive into a directory, and goes on where an earlier download was cut off."""

import fcntl
import os
import re
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TextIO

import httpx

from search.numbers_in_messages import counted
from service.cli.argument_values import BadArgument
from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.settings import without_password

MAX_FAILURES = 5
"""How often in a row the download may fail without a byte having come."""

PAUSE_SECONDS = 1.0


_STRONG_ETAG = re.compile(r'"([0-9a-f]{1,64})"')


class CannotFetch(Exception):
    """The files cannot be written where the user wants them, or what has come is not the service's archive."""


class NotTheArchive(CannotFetch):
    """Another program has answered, or has changed the answer: the service itself may answer later."""

    is_temporary = True


def fetch_archive(client: Client, path: str, target: Path) -> None:
    """Download what the service has at this path as a tar archive, to the new directory `target`.

    What has come is kept beside it if the command is interrupted.

    Raises BadArgument for a directory that exists, CannotFetch, Unreachable, Refused.
    """
    try:
        _check_absent(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        stem = _stem(path, target)
        with _locked(stem, target):
            _check_absent(target)  # another command may have ended just now
            archive = _download(client, path, stem)
            _unpack(archive, target)
            archive.unlink()
    except OSError as error:
        raise CannotFetch(f"{target} cannot be written: {error}") from error
    except tarfile.TarError as error:
        raise CannotFetch(f"{archive} cannot be unpacked, and is left as it is: {error}") from error


def _check_absent(target: Path) -> None:
    if target.exists():
        raise BadArgument(f"{target} exists already; remove it, or choose another directory with --to")


def _stem(path: str, target: Path) -> Path:
    """The name of the file for what has come: equal for equal calls, and short however long the names are."""
    return target.with_name(f".paceline-fetch-{sha256(f'{target.name} {path}'.encode()).hexdigest()[:16]}")


@contextmanager
def _locked(stem: Path, target: Path) -> Iterator[None]:
    """One command at a time writes and unpacks what has come. Raises CannotFetch while another one does.

    The lock is a file of its own, since what has come is deleted and begun again. It is deleted while it is held, so
    that nothing is left; another command that has opened it before sees that its name is gone.
    """
    file = stem.with_name(f"{stem.name}.lock")
    with file.open("a") as lock:
        if not (_locks(lock) and _has_name(lock, file)):
            raise CannotFetch(
                f"another command fetches {target} at this moment; wait for it, or choose another directory with --to"
            )
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _locks(file: TextIO) -> bool:
    """Whether the lock was taken; true also where none can be had, as in some network file systems."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _has_name(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _download(client: Client, path: str, stem: Path) -> Path:
    failures, most = 0, _received_bytes(stem)
    while True:
        try:
            return _continue_download(client, path, stem)
        except (Unreachable, Refused, NotTheArchive) as error:
            if not error.is_temporary:
                raise
            received = _received_bytes(stem)
            failures, most = 0 if received > most else failures + 1, max(most, received)
            if failures == MAX_FAILURES:
                raise
        time.sleep(PAUSE_SECONDS)


def _continue_download(client: Client, path: str, stem: Path) -> Path:
    """Ask for what is missing, or for all if what has come does not fit."""
    file = _received(stem)
    if file is None:
        return _begin_download(client, path, stem)
    start = file.stat().st_size
    try:
        with client.archive(path, start, f'"{file.suffixes[-2][1:]}"') as response:
            if response.status_code != httpx.codes.PARTIAL_CONTENT:  # of an archive that has changed
                new = _file_of(response, stem)
                file.unlink()
                return _append(response, new)
            if _starts_at(response, start):
                return _append(response, file)
    except Refused as refused:
        size = refused.problem.get("size")
        if refused.type != "range-not-satisfiable" or not isinstance(size, int) or size > start:
            raise
        if size == start:
            return file
    file.unlink()
    return _begin_download(client, path, stem)


def _begin_download(client: Client, path: str, stem: Path) -> Path:
    with client.archive(path) as response:
        return _append(response, _file_of(response, stem))


def _file_of(response: httpx.Response, stem: Path) -> Path:
    """The name of the file is `stem` and the archive's ETag, so that no two archives mix. Raises NotTheArchive."""
    return stem.with_name(f"{stem.name}.{_etag(response)}.tar")


def _append(response: httpx.Response, file: Path) -> Path:
    with file.open("ab") as received:
        for chunk in response.iter_raw():
            received.write(chunk)
    return file


def _starts_at(response: httpx.Response, start: int) -> bool:
    """Whether the part is what was asked for. A proxy may answer another one, such as one that it has kept."""
    return str(response.headers.get("content-range", "")).startswith(f"bytes {start}-")


def _etag(response: httpx.Response) -> str:
    """The tag has no quotation marks. Raises NotTheArchive for what does not begin an archive of the service."""
    etag = response.headers.get("etag", "")
    found = _STRONG_ETAG.fullmatch(etag)
    if found is None or response.status_code != httpx.codes.OK:
        raise NotTheArchive(
            f"{without_password(str(response.url))} answered {response.status_code} with the ETag {etag!r}, not 200 "
            "with a strong ETag as the service does; is PACELINE_URL right, or does a proxy in between change answers?"
        )
    return found[1]


def _received(stem: Path) -> Path | None:
    return next(stem.parent.glob(f"{stem.name}.*.tar"), None)


def _received_bytes(stem: Path) -> int:
    file = _received(stem)
    return file.stat().st_size if file else 0


def _unpack(archive: Path, target: Path) -> None:
    """Everything in the archive is in one directory, which becomes `target` once it is complete."""
    unpacked = archive.with_suffix(".unpacked")
    rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    try:
        with tarfile.open(archive, "r:") as tar:
            tar.extractall(unpacked, filter="data")
        tops = list(unpacked.iterdir())
        if len(tops) != 1:
            raise tarfile.ReadError(f"it has {counted(len(tops), 'member')} at its top in place of one directory")
        tops[0].rename(target)
    finally:
        rmtree(unpacked, ignore_errors=True)
