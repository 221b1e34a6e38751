"""The checkpoint that an attempt resumes from, when its bucket refuses calls."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.s3_server import S3Server
from trainer.unused_folders import ScratchFolder
from trainer.worker.failures import LOST, NotRead, describe, not_read

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds

SMALL_FILES = {f"settings/{number}.json": json.dumps({"number": number}).encode() for number in range(40)}
FILES = {**SMALL_FILES, "model.bin": bytes(range(256)) * 8192}


@pytest.fixture
def checkpoint(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes an object for the same checkpoint in the bucket, as each rank of a trial has its own.

    Its arguments are those of the class that follow.
    """
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - heavy

    from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint  # noqa: PLC0415

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    uri = s3.storage.replace("?", "/checkpoint?")
    storage, folder = FileSystem.from_uri(uri)
    for name, content in {**FILES, ".metadata.json": b'{"epoch": 3}'}.items():
        with storage.open_output_stream(f"{folder}/{name}") as stream:
            stream.write(content)
    return partial(ResumedCheckpoint, uri, not_read)


def files_in(folder: str) -> dict[str, bytes]:
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.name != ".metadata.json"}


def test_many_small_files_in_an_overloaded_bucket_are_all_read(checkpoint: Callable[..., Any], s3: S3Server) -> None:
    s3.is_slow, users = True, random.getstate()
    with checkpoint().as_directory() as folder:
        assert files_in(folder) == FILES
    assert random.getstate() == users, "the user's code may have seeded it"
    assert s3.refused > 0
    assert not Path(folder).exists()
    assert checkpoint().get_metadata() == {"epoch": 3}


def test_a_rank_that_finds_another_one_reading_has_all_files_also_when_that_one_fails(
    checkpoint: Callable[..., Any], s3: S3Server
) -> None:
    is_reading, may_fail = threading.Event(), threading.Event()
    refused = []

    def refuses(path: str) -> bool:
        """One file, once, when the second rank has come."""
        is_reading.set()
        may_fail.wait()
        if path.endswith("/7.json"):
            refused.append(path)
        return path.endswith("/7.json") and len(refused) == 1

    def read(rank: Any) -> dict[str, bytes]:
        with rank.as_directory() as folder:
            return files_in(folder)

    first, second = checkpoint(patience_seconds=0), checkpoint(patience_seconds=0)
    s3.refuses_reading = refuses
    with ThreadPoolExecutor(2) as ranks:
        failing = ranks.submit(read, first)
        is_reading.wait()
        waiting = ranks.submit(read, second)
        may_fail.set()
        with pytest.raises(NotRead, match="every node must be able to read the experiment's storage") as raised:
            failing.result()
        assert waiting.result() == FILES
    assert describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None).kind == LOST


def test_the_ranks_on_a_node_share_one_download_until_the_last_has_read_it(
    checkpoint: Callable[..., Any], s3: S3Server
) -> None:
    read = []

    def refuses(path: str) -> bool:
        read.append(path)
        return False

    first, second = checkpoint(), checkpoint()
    s3.refuses_reading = refuses
    with first.as_directory() as folder:
        with second.as_directory() as seconds:
            assert seconds == folder
        assert files_in(folder) == FILES
    assert len(read) == len(FILES) + 1
    assert not Path(folder).exists()


def test_a_directory_of_ones_own_is_not_shared(checkpoint: Callable[..., Any], tmp_path: Path) -> None:
    own = [checkpoint().to_directory(), checkpoint().to_directory(), checkpoint().to_directory(tmp_path / "named")]
    assert len(set(own)) == 3
    assert all(files_in(folder) == FILES for folder in own)
    Path(own[0], "model.bin").write_bytes(b"spoilt")
    assert files_in(checkpoint().to_directory(own[0])) == FILES


def test_copies_without_a_name_go_with_the_attempt(checkpoint: Callable[..., Any], tmp_path: Path) -> None:
    before, scratch = set(tmp_path.iterdir()), ScratchFolder()
    assert files_in(checkpoint(scratch).to_directory()) == FILES
    assert set(tmp_path.iterdir()) > before
    scratch.remove()
    assert set(tmp_path.iterdir()) == before


def test_a_copy_of_a_local_checkpoint_goes_with_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint  # noqa: PLC0415

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (saved := tmp_path / "saved").mkdir()
    (saved / "weights").write_text("1")
    scratch = ScratchFolder()
    copy = Path(ResumedCheckpoint(str(saved), not_read, scratch).to_directory())
    assert (copy / "weights").read_text() == "1"
    scratch.remove()
    assert not copy.exists()
    assert saved.exists()


READER = """
import sys, tempfile
from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint
from trainer.worker.failures import not_read
uri, tempfile.tempdir = sys.argv[1:]
with ResumedCheckpoint(uri, not_read).as_directory() as directory:
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed_when_another_one_reads(
    checkpoint: Callable[..., Any], s3: S3Server, tmp_path: Path
) -> None:
    """But not the directory of a living one, however long it reads."""
    command = [sys.executable, "-W", "ignore", "-c", READER, s3.storage, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout
        theirs = Path(reader.stdout.readline().strip())
        os.utime(theirs, (1, 1))
        with checkpoint().as_directory():
            assert files_in(str(theirs / "checkpoint")) == FILES
        reader.kill()
    os.utime(theirs, (1, 1))
    with checkpoint().as_directory():
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_checkpoint_that_cannot_be_read(
    checkpoint: Callable[..., Any], s3: S3Server, tmp_path: Path
) -> None:
    s3.refuses_reading = lambda path: path.endswith("/7.json")
    with pytest.raises(NotRead), checkpoint(patience_seconds=0).as_directory():
        pytest.fail("it is not complete")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("made", ["by another user", "for all to write", "as a link"])
def test_a_shared_directory_that_another_user_may_have_made_is_not_used(
    checkpoint: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    resumed = checkpoint()
    with resumed.as_directory() as folder:
        shared = Path(folder)
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (real / "model.bin").touch()
    if made == "as a link":
        shared.symlink_to(real)
    else:
        real.rename(shared)
        shared.chmod(0o777 if made == "for all to write" else 0o700)
    if made == "by another user":
        monkeypatch.setattr(os, "getuid", lambda: shared.stat().st_uid + 1)
    with pytest.raises(NotRead, match="another user may write to the directory"), resumed.as_directory():
        pytest.fail("it is not this user's own")
    assert [path.name for path in shared.iterdir()] == ["model.bin"]


def test_a_copy_into_a_directory_that_cannot_be_made_is_an_error_of_the_user(tmp_path: Path) -> None:
    from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint  # noqa: PLC0415

    (saved := tmp_path / "saved").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        ResumedCheckpoint(str(saved), not_read).to_directory(tmp_path / "file" / "out")


@pytest.mark.parametrize("place", ["bucket", "directory"])
def test_a_checkpoint_that_is_not_there_is_a_missing_file_and_no_error_of_the_user(
    checkpoint: Callable[..., Any], tmp_path: Path, place: str
) -> None:
    """Another thing may answer in the place of the bucket: the listing of a page is empty."""
    from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint  # noqa: PLC0415

    missing = checkpoint() if place == "bucket" else ResumedCheckpoint(str(tmp_path / "saved"), not_read)
    missing.path += "/none"
    with pytest.raises(FileNotFoundError, match="/none is not on the storage") as raised:
        missing.to_directory()
    failure = describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None, resume=missing.path)
    assert (failure.kind, failure.is_checkpoint_missing) == (LOST, True)


def test_a_page_in_the_place_of_a_file_is_not_read_as_the_file(checkpoint: Callable[..., Any], s3: S3Server) -> None:
    s3.page = lambda _, path: b"<html></html>" if path.endswith("/model.bin") else None
    with pytest.raises(NotRead, match=r"model\.bin returned 13 bytes, but it has \d+;"):
        checkpoint(patience_seconds=0).to_directory()
