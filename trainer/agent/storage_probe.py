"""Whether the agent can write to the storage of checkpoints, so that no trial has to find out that it cannot."""

import logging
import secrets
import shutil
import threading
import time
from pathlib import PurePosixPath

from pyarrow.fs import FileSystem, FileType, LocalFileSystem

from trainer.open_file_limit import open_file_advice
from trainer.ray_train.checkpoints.file_copy import ELSEWHERE_ADVICE

logger = logging.getLogger(__name__)

PROBE_SECONDS = 20.0
RETRY_SECONDS = 3.0
"""The pause after a probe that has failed."""

CONTENT_BYTES = 4096
"""More than a bucket's error has: pyarrow repeats a refused reading only if the error fits into the file's size."""

GIGABYTE = 10**9

ROOM_SECONDS = 900.0
"""How long a storage without room for a checkpoint gets no trial, unless it has room before."""

ANSWER_SECONDS = 20.0
"""A storage that has not answered for so long counts as unreachable."""


class StorageProbe(threading.Thread):
    """Writes a small file again and again, in a thread of its own, because a storage may never answer.

    The file stays, so that the probe notices when another folder has taken the storage's place: where a share is no
    longer mounted there is an empty folder, which can be written, but has no checkpoint to resume from.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(name="paceline-storage-probe", daemon=True)
        self._file = f".paceline-probe-{agent}"
        self._location: str | None = None
        self._located = threading.Event()
        self._probed = threading.Event()
        self._error: str | None = None
        self._began_at: float | None = None
        self._wanted = threading.Event()
        self._asked_count = self._answered_count = 0
        self._is_kept = False
        self._wanted_room: tuple[int, float] | None = None

    def set_location(self, location: str | None) -> None:
        """The storage as the service names it. Repeated calls are cheap; without a location nothing is probed."""
        if location != self._location:
            self._location, self._is_kept = location, False
        if location is not None:
            self._located.set()

    def await_first(self, seconds: float) -> None:
        """Wait until the storage has been probed once, if there is one."""
        if self._location is not None:
            self._probed.wait(seconds)

    def check_now(self, required_bytes: int | None = None) -> None:
        """Something was lost, perhaps because the storage is away: probe it without a pause.

        `required_bytes`: of a checkpoint for which it had no room. It cannot be used until it has so much, or for
        ROOM_SECONDS: other experiments may save less, and one that never fits fails by its losses.
        """
        if required_bytes is not None:
            self._wanted_room = (required_bytes, time.monotonic() + ROOM_SECONDS)
        self._asked_count += 1
        self._wanted.set()

    @property
    def is_settled(self) -> bool:
        """Whether `error` is of a probe that began after the last `check_now`, or there is nothing to wait for."""
        return self._answered_count == self._asked_count or self._location is None or self.error is not None

    @property
    def error(self) -> str | None:
        """Why the storage cannot be written now. None if it can, or is not known yet."""
        began_at = self._began_at
        if began_at is not None and time.monotonic() - began_at > ANSWER_SECONDS:
            return f"{self._location} has not answered for {time.monotonic() - began_at:.0f} s"
        return self._error

    def run(self) -> None:
        self._located.wait()
        while True:
            self._wanted.clear()  # before the count is read: a later request makes another probe
            asked_count, self._began_at = self._asked_count, time.monotonic()
            error = self._probe()
            if error != self._error:
                logger.warning("the storage: %s", error or f"{self._location} can be written again")
            self._error, self._began_at, self._answered_count = error, None, asked_count
            self._probed.set()
            self._wanted.wait(PROBE_SECONDS if error is None else RETRY_SECONDS)

    def _probe(self) -> str | None:
        """Return why the storage cannot be used; None if it can."""
        location = str(self._location)
        try:
            storage, file = _file_in(location, self._file)
            if self._is_kept and storage.get_file_info(file).type == FileType.NotFound:
                return (
                    f"{location} has lost the file {self._file}, which this agent keeps there. If a share is no longer "
                    "mounted, mount it again; if the storage was emptied on purpose, restart the agent"
                )
            _write(storage, file)
            missing_room = self._missing_room(location, file) if isinstance(storage, LocalFileSystem) else None
        except Exception as error:  # noqa: BLE001 - whatever a file system raises, it cannot be used
            return _cannot_be_written(location, error)
        self._is_kept = location == self._location
        return missing_room

    def _missing_room(self, location: str, file: str) -> str | None:
        """Why a checkpoint would have no room again, on the file system that has the file."""
        wanted = self._wanted_room
        if wanted is None:
            return None
        free, (required, until) = shutil.disk_usage(file).free, wanted
        if free < required and time.monotonic() < until:
            return f"{location} has {_size(free)} free, and a checkpoint of {_size(required)} had no room"
        if self._wanted_room is wanted:  # no other loss has come meanwhile
            self._wanted_room = None
        return None


def write_error(location: str, name: str) -> str | None:
    """Write and delete a file of this name in the storage. Return why that is not possible; None if it is."""
    try:
        storage, file = _file_in(location, name)
        _write(storage, file)
        storage.delete_file(file)
    except Exception as error:  # noqa: BLE001 - whatever a file system raises, it cannot be used
        return _cannot_be_written(location, error)
    return None


def _file_in(location: str, name: str) -> tuple[FileSystem, str]:
    storage, folder = FileSystem.from_uri(location)
    return storage, str(PurePosixPath(folder, name))


def _write(storage: FileSystem, file: str) -> None:
    """Raises OSError if the file cannot be read afterwards as it was written, whatever the storage has answered."""
    content = secrets.token_hex(CONTENT_BYTES // 2).encode()
    storage.create_dir(str(PurePosixPath(file).parent), recursive=True)
    with storage.open_output_stream(file) as stream:
        stream.write(content)
    with storage.open_input_stream(file) as stream:
        found = stream.read(len(content))
    if found != content:
        raise OSError(f"reading {PurePosixPath(file).name} returned other bytes than were written; {ELSEWHERE_ADVICE}")


def _size(count: int) -> str:
    return f"{count / GIGABYTE:.3g} GB" if count >= GIGABYTE else f"{count / 1e6:.3g} MB"


def _cannot_be_written(location: str, error: Exception) -> str:
    advice = open_file_advice(str(error), is_own=True)
    return f"{location} cannot be written: {type(error).__name__}: {error}{f'; {advice}' if advice else ''}"
