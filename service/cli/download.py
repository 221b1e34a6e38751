"""Downloads an archive into a directory, and goes on where an earlier download was cut off."""

import re
import tarfile
import time
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

import httpx

from search.numbers_in_messages import counted
from service.cli.arguments import BadArgument
from service.cli.client import Client, Refused, Unreachable
from service.settings import without_password

MAX_FAILURES = 5
"""How often in a row the download may fail without a byte having come."""

PAUSE_SECONDS = 1.0


_STRONG_ETAG = re.compile(r'"([0-9a-f]{1,64})"')


class CannotFetch(Exception):
    """The files cannot be written where the user wants them, or what has come is not the service's archive."""


def fetch_archive(client: Client, path: str, target: Path) -> None:
    """Download what the service has at this path as a tar archive, to the new directory `target`.

    What has come is kept beside it if the command is interrupted.

    Raises BadArgument for a directory that exists, CannotFetch, Unreachable, Refused.
    """
    try:
        if target.exists():
            raise BadArgument(f"{target} exists already; remove it, or choose another directory with --to")
        target.parent.mkdir(parents=True, exist_ok=True)
        archive = _download(client, path, _stem(path, target))
        _unpack(archive, target)
        archive.unlink()
    except OSError as error:
        raise CannotFetch(f"{target} cannot be written: {error}") from error
    except tarfile.TarError as error:
        raise CannotFetch(f"{archive} cannot be unpacked, and is left as it is: {error}") from error


def _stem(path: str, target: Path) -> Path:
    """Of the file for what has come: the same for the same call, and short however long the names are."""
    return target.with_name(f".paceline-fetch-{sha256(f'{target.name} {path}'.encode()).hexdigest()[:16]}")


def _download(client: Client, path: str, stem: Path) -> Path:
    failures = 0
    while True:
        before = _received_bytes(stem)
        try:
            return _continue_download(client, path, stem)
        except (Unreachable, Refused) as error:
            if not error.is_temporary:
                raise
            failures = failures + 1 if _received_bytes(stem) == before else 0
            if failures == MAX_FAILURES:
                raise
        time.sleep(PAUSE_SECONDS)


def _continue_download(client: Client, path: str, stem: Path) -> Path:
    """Ask for what is missing. The name of the file is `stem` and the archive's ETag, so that no two archives mix."""
    file, start = _received(stem), _received_bytes(stem)
    etag = f'"{file.suffixes[-2][1:]}"' if file else None
    try:
        with client.archive(path, start, etag) as response:
            if file is None or response.status_code != httpx.codes.PARTIAL_CONTENT:
                started = stem.with_name(f"{stem.name}.{_etag(response)}.tar")
                if file:
                    file.unlink()
                file = started
            with file.open("ab") as received:
                for chunk in response.iter_raw():
                    received.write(chunk)
    except Refused as refused:
        if refused.type != "range-not-satisfiable" or refused.problem.get("size") != start or not file:
            raise
    return file


def _etag(response: httpx.Response) -> str:
    """Without quotation marks. Raises CannotFetch for what does not begin an archive of the service."""
    etag = response.headers.get("etag", "")
    found = _STRONG_ETAG.fullmatch(etag)
    if found is None or response.status_code != httpx.codes.OK:
        raise CannotFetch(
            f"{without_password(str(response.url))} answered {response.status_code} with the ETag {etag!r}, and not as "
            "the service does, with 200 and a strong one; is PACELINE_URL right, or does a proxy in between change "
            "answers?"
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
