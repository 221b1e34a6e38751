"""What an agent does to the storage besides saving: it probes it, and deletes what the service names. Needs no Ray."""

import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.trainer.conftest import until
from trainer.agent import checkpoint_deletions, storage_probe
from trainer.agent.checkpoint_deletions import CheckpointDeletions
from trainer.agent.storage_probe import StorageProbe

if TYPE_CHECKING:
    from tests.trainer.s3_server import S3Server

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the agent's modules import Ray

SECONDS = 240


def test_a_storage_that_cannot_be_written_is_known_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_probe, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.02)
    (tmp_path / "mount").write_text("not a directory")
    probe = StorageProbe("here")
    probe.start()
    probe.await_first(SECONDS)
    assert probe.error is None, "the service has not named it yet"
    probe.set_location(str(tmp_path / "mount" / "checkpoints"))
    probe.await_first(SECONDS)
    assert probe.error is not None
    assert f"{tmp_path}/mount/checkpoints cannot be written" in probe.error
    (tmp_path / "mount").unlink()
    until(lambda: probe.error is None, "the storage is known to work again")
    assert [path.name for path in (tmp_path / "mount" / "checkpoints").iterdir()] == [".paceline-probe-here"]


def test_an_empty_folder_in_the_place_of_a_share_is_not_its_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a share is no longer mounted: the folder can be written, and has no checkpoint to resume from."""
    monkeypatch.setattr(storage_probe, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.02)
    probe = StorageProbe("here")
    probe.set_location(str(tmp_path / "mount"))
    probe.start()
    probe.await_first(SECONDS)
    (tmp_path / "mount").rename(tmp_path / "share")
    (tmp_path / "mount").mkdir()
    until(lambda: probe.error, "the folder is not taken for the storage")
    assert "has lost the file .paceline-probe-here" in str(probe.error)
    (tmp_path / "mount").rmdir()
    (tmp_path / "share").rename(tmp_path / "mount")
    until(lambda: probe.error is None, "the share is mounted again")
    probe.set_location(str(tmp_path / "another"))
    until((tmp_path / "another" / ".paceline-probe-here").exists, "another location starts anew")
    until(lambda: probe.error is None, "it is no loss")


def test_a_storage_without_room_for_a_checkpoint_is_unusable_until_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe's own file is small, and would fit."""
    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.02)
    free = 3_000_000
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    probe = StorageProbe("here")
    probe.set_location(str(tmp_path))
    probe.start()
    probe.await_first(SECONDS)
    assert probe.error is None
    probe.check_now(8_000_000)
    until(lambda: probe.error, "there is no room")
    assert probe.error == f"{tmp_path} has 3 MB free, and a checkpoint of 8 MB had no room"
    free = 9_000_000
    until(lambda: probe.error is None, "there is room")
    free = 3_000_000
    probe.check_now()
    until(lambda: probe.is_settled, "it has been probed again")
    assert probe.error is None


def test_a_storage_without_room_is_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other experiments may save less; and one whose checkpoints never fit has to fail."""
    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(storage_probe, "ROOM_SECONDS", 0.0)
    probe = StorageProbe("here")
    probe.set_location(str(tmp_path))
    probe.start()
    probe.await_first(SECONDS)
    probe.check_now(10**20)
    until(lambda: probe.is_settled, "it has been probed")
    assert probe.error is None


def test_a_storage_is_probed_without_a_pause_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_probe, "PROBE_SECONDS", float(SECONDS * 10))
    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.02)
    probe = StorageProbe("here")
    probe.check_now()
    assert probe.is_settled, "the service has not named it yet"
    probe.set_location(str(tmp_path / "mount"))
    probe.start()
    probe.await_first(SECONDS)
    (tmp_path / "mount").rename(tmp_path / "share")
    (tmp_path / "mount").write_text("not a directory")
    assert probe.error is None
    probe.check_now()
    until(lambda: probe.is_settled, "the storage has been probed again")
    assert probe.error is not None
    (tmp_path / "mount").unlink()
    (tmp_path / "share").rename(tmp_path / "mount")
    until(lambda: probe.error is None, "the storage is known to work again")


def test_a_storage_that_does_not_answer_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_probe, "ANSWER_SECONDS", 0.1)
    probe = StorageProbe("here")
    never_written = tmp_path / ".paceline-probe-here"
    import os  # noqa: PLC0415 - a pipe without a reader: opening it never returns

    os.mkfifo(never_written)
    assert stat.S_ISFIFO(never_written.stat().st_mode)
    probe.start()
    probe.set_location(str(tmp_path))
    until(lambda: probe.error, "the storage counts as unreachable")
    assert "has not answered for" in str(probe.error)
    with never_written.open("r+b", buffering=0):  # lets the thread go on
        probe.await_first(SECONDS)


@pytest.mark.slow  # importing moto takes seconds
def test_a_bucket_that_refuses_one_reading_in_a_while_can_be_written(s3: "S3Server") -> None:
    """As one that is overloaded: without a repetition a probe of five calls failed at the same one every time."""
    refusals = [True]
    s3.refuses_reading = lambda _path: bool(refusals) and refusals.pop()
    assert storage_probe.write_error(s3.storage, "file") is None
    assert not refusals


@pytest.mark.slow  # importing moto takes seconds
@pytest.mark.parametrize("methods", ["HEAD GET PUT POST", "HEAD PUT POST"])
@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b""])
def test_a_bucket_in_whose_place_a_gateway_answers_cannot_be_written(s3: "S3Server", page: bytes, methods: str) -> None:
    assert storage_probe.write_error(s3.storage, "file") is None
    s3.page = lambda method, _: page if method in methods.split() else None
    error = storage_probe.write_error(s3.storage, "file")
    assert f"{s3.storage} cannot be written" in str(error)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_directories_are_deleted_and_one_that_cannot_be_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(checkpoint_deletions, "RETRY_SECONDS", 0.0)
    deletions = CheckpointDeletions()
    deletions.start()
    folder, blocked = tmp_path / "digits-x-1", tmp_path / "blocked"
    (folder / "trial-0-attempt-1" / "checkpoint").mkdir(parents=True)
    blocked.write_text("a file where the directory should be")
    named = [
        {"id": 1, "directory": f"{scheme}{folder}"},
        {"id": 2, "directory": f"{scheme}{tmp_path}/gone"},
        {"id": 3, "directory": f"{scheme}{blocked}"},
    ]
    deleted, failed = set[int](), dict[int, str]()

    def collect() -> int:
        if (results := deletions.take_results()) is not None:
            deleted.update(results["deleted"])
            failed.update({one["id"]: one["error"] for one in results["failed"]})
        return len(deleted) + len(failed)

    assert deletions.take_results() is None
    deletions.add(named)
    deletions.add(named)
    until(lambda: collect() == 3, "all directories were tried")
    assert (deleted, set(failed), folder.exists()) == ({1, 2}, {3}, False)
    blocked.unlink()
    deletions.add(named[2:])
    until(lambda: collect() and 3 in deleted, "the failed one is deleted")
