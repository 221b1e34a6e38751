"""Checkpoints that are no longer needed are removed, also those that could not be at first."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.operations.checkpoints import folders
from service.store.tables import ExperimentRow
from tests.trainer.conftest import until
from trainer.slot.checkpoints import checkpoint_removal, local_removal
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover, remove_all_except, remove_directory

NOBODY = 65534
EXPERIMENT = "mine-x-111111111111"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage with two checkpoints that is away: there is a file in its place."""
    for name in ("old", "new"):
        (tmp_path / "away" / name).mkdir(parents=True)
    (tmp_path / "storage").touch()
    return tmp_path / "storage"


@pytest.fixture
def remover() -> Iterator[CheckpointRemover]:
    remover = CheckpointRemover(retry_seconds=[0.01] * 1000)
    remover.start()
    yield remover
    remover.close(10)


def come_back(storage: Path) -> None:
    storage.unlink()
    storage.with_name("away").rename(storage)


def test_what_could_not_be_removed_is_removed_when_the_storage_is_back(
    storage: Path, remover: CheckpointRemover, caplog: pytest.LogCaptureFixture
) -> None:
    assert not remover.has_work
    remover.remove(str(storage / "old"))
    assert remover.has_work
    until(lambda: "could not be removed" in caplog.text, "the removal fails")
    assert remover.has_work, "it is to be tried again"
    come_back(storage)
    until(lambda: not remover.has_work, "the removal is tried again")
    assert not (storage / "old").exists()
    assert (storage / "new").exists()


def test_unfinished_checkpoints_are_removed_when_the_storage_is_back(
    storage: Path, remover: CheckpointRemover, caplog: pytest.LogCaptureFixture
) -> None:
    remover.remove_all_except({"new"}, str(storage))
    until(lambda: "could not be removed" in caplog.text, "the removal fails")
    come_back(storage)
    until(lambda: [one.name for one in storage.iterdir()] == ["new"], "the removal is tried again")


def test_an_error_that_no_file_system_should_raise_is_logged_and_the_removals_go_on(
    storage: Path, remover: CheckpointRemover, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RuntimeError("not today"), RuntimeError("nor now")]

    def fails_twice() -> None:
        if errors:
            raise errors.pop()

    come_back(storage)
    remover.run_soon(fails_twice, "a directory")
    remover.remove(str(storage / "old"))
    until(lambda: not remover.has_work, "both are done")
    assert not (storage / "old").exists()
    assert "not today" in caplog.text


def test_a_remover_that_closes_tries_once_more(storage: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = CheckpointRemover(retry_seconds=[1000])
    remover.start()
    remover.remove(str(storage / "old"))
    until(lambda: "could not be removed" in caplog.text, "the removal fails")
    come_back(storage)
    remover.close(10)
    assert not (storage / "old").exists()


def test_a_remover_that_closes_tries_again_until_its_time_is_over(
    storage: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_removal, "LAST_RETRY_SECONDS", 0.01)
    remover = CheckpointRemover(retry_seconds=[1000])
    remover.start()
    remover.remove(str(storage / "old"))
    with ThreadPoolExecutor() as threads:
        closed = threads.submit(remover.close, 60)
        until(lambda: caplog.text.count("could not be removed") > 2, "it has tried again")
        come_back(storage)
        closed.result()
    assert [one.name for one in storage.iterdir()] == ["new"]


def test_what_can_never_be_removed_is_left_after_the_last_try(storage: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = CheckpointRemover(retry_seconds=[0.01, 0.01])
    remover.start()
    remover.remove(str(storage / "old"))
    until(lambda: caplog.text.count("could not be removed") == 3, "all tries have failed")
    remover.close(10)
    assert caplog.text.count("could not be removed") == 3


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory outside of the storage, with names that a run has, too."""
    (tmp_path / "home/trial-0-attempt-1/ssh").mkdir(parents=True)
    (tmp_path / "home/ssh").mkdir()
    (tmp_path / "storage/x").mkdir(parents=True)
    return tmp_path / "home"


@pytest.mark.parametrize("link", ["storage/x", "storage/x/trial-0-attempt-1", "storage/x/trial-0-attempt-1/ssh"])
def test_nothing_is_removed_through_a_link_that_user_code_has_put_into_the_storage(
    tmp_path: Path, home: Path, link: str
) -> None:
    (tmp_path / "storage/x/trial-0-attempt-1/ssh").mkdir(parents=True)
    (tmp_path / link).rename(tmp_path / "was")
    (tmp_path / link).symlink_to(home)
    before = sorted(home.rglob("*"))
    run = tmp_path / "storage/x/trial-0-attempt-1"
    with pytest.raises(OSError, match=r"link|Not a directory"):
        remove_directory(f"{run}/ssh")
    with contextlib.suppress(OSError):
        remove_directory(str(run))
    with contextlib.suppress(OSError):
        remove_all_except({"other"}, str(run))
    assert sorted(home.rglob("*")) == before


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "storage/x/trial-0-attempt-1"
    (run / "ssh").mkdir(parents=True)
    realpath = os.path.realpath

    def then_exchange(path: Path) -> str:
        real = realpath(path)
        run.rename(tmp_path / "was")
        run.symlink_to(home)
        return real

    monkeypatch.setattr(os.path, "realpath", then_exchange)
    with pytest.raises(OSError, match="trial-0-attempt-1"):
        remove_directory(f"{run}/ssh")
    assert (home / "ssh").exists()


def test_a_folder_that_becomes_a_link_during_the_removal_is_not_followed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "storage/x/trial-0-attempt-1/old"
    (checkpoint / "ssh").mkdir(parents=True)
    scandir = os.scandir

    def then_exchange(directory: int) -> Any:
        monkeypatch.setattr(os, "scandir", scandir)
        with scandir(directory) as found:
            entries = list(found)
        (checkpoint / "ssh").rmdir()
        (checkpoint / "ssh").symlink_to(home)
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", then_exchange)
    with pytest.raises(OSError, match="ssh"):
        remove_directory(str(checkpoint))
    assert (home / "ssh").exists()


def test_a_folder_that_is_moved_elsewhere_during_the_removal_does_not_lead_out(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "storage/x/trial-0-attempt-1/old"
    (checkpoint / "model/ssh/file").mkdir(parents=True)
    (checkpoint / "model/other").mkdir(parents=True)
    rmdir = os.rmdir

    def then_move(name: str, *, dir_fd: int) -> None:
        rmdir(name, dir_fd=dir_fd)
        if (checkpoint / "model").exists():
            (checkpoint / "model").rename(home / "model")

    monkeypatch.setattr(os, "rmdir", then_move)
    with pytest.raises(OSError, match="moved"):
        remove_directory(str(checkpoint))
    assert (home / "ssh").exists()


def test_what_another_agent_removes_meanwhile_is_skipped_and_the_rest_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "storage/x/trial-0-attempt-1/old"
    for folder in ("a", "b", "c"):
        (checkpoint / folder / "inner").mkdir(parents=True)
        for file in ("1", "2", "3"):
            (checkpoint / folder / file).touch()
    unlink = os.unlink

    def by_both(name: str, *, dir_fd: int) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        unlink(name, dir_fd=dir_fd)
        shutil.rmtree(checkpoint / "b")
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", by_both)
    remove_directory(str(checkpoint))
    assert list(checkpoint.parent.iterdir()) == []


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A directory with 1,500 others, each in the one before."""
    deep = tmp_path / "deep"
    deep.mkdir()
    folder = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        outer, folder = folder, os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(outer)
    os.close(folder)
    yield deep
    subprocess.run(["rm", "-rf", deep], check=True)  # what is left here, pytest could not remove


def open_below(folder: Path) -> list[str]:
    """Other tests' threads open and close files of their own meanwhile."""
    targets = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            targets.append(str(one.readlink()))
    return [target for target in targets if target.startswith(str(folder))]


def test_a_tree_that_is_deeper_than_python_recurses_is_removed(deep: Path, tmp_path: Path) -> None:
    remove_directory(str(deep))
    assert not deep.exists()
    assert open_below(tmp_path) == []


def test_links_that_lead_in_a_circle_are_an_error_of_the_storage(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="circle"):
        remove_directory(str(tmp_path / "circle/x/trial-0-attempt-1/old"))


def test_a_storage_may_be_in_a_folder_that_has_the_name_of_a_run(tmp_path: Path) -> None:
    outer = tmp_path / "trial-1-attempt-1"
    (outer / "storage" / EXPERIMENT / "trial-0-attempt-1/old").mkdir(parents=True)
    (outer / "mine").symlink_to(outer / "storage")
    remove_directory(str(outer / "mine" / EXPERIMENT / "trial-0-attempt-1/old"))
    assert list((outer / "storage" / EXPERIMENT / "trial-0-attempt-1").iterdir()) == []


def test_a_link_in_a_run_does_not_lead_to_another_experiments_run(tmp_path: Path) -> None:
    other = tmp_path / "digits-x-222222222222"
    (other / "trial-0-attempt-1/old").mkdir(parents=True)
    run = tmp_path / EXPERIMENT / "trial-0-attempt-1"
    run.mkdir(parents=True)
    (run / other.name).symlink_to(other)
    with pytest.raises(OSError, match="link"):
        remove_directory(str(run / other.name / "trial-0-attempt-1/old"))
    assert (other / "trial-0-attempt-1/old").exists()


def test_no_event_files_are_removed_through_a_link_in_place_of_the_experiments_folder(tmp_path: Path) -> None:
    experiment = ExperimentRow(id="x-0123456789ab", name="digits")
    assert local_removal.EXPERIMENT.fullmatch(folders.experiment_folder(experiment))
    assert local_removal.EVENT_FILES == folders.EVENT_FILES
    (tmp_path / "home/tensorboard/trial-0-attempt-1").mkdir(parents=True)
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/x").symlink_to(tmp_path / "home")
    with pytest.raises(OSError, match="link"):
        remove_directory(str(tmp_path / "storage/x/tensorboard/trial-0-attempt-1"))
    assert (tmp_path / "home/tensorboard/trial-0-attempt-1").exists()


def test_the_storage_itself_may_be_reached_through_a_link(tmp_path: Path, home: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "storage/x/trial-0-attempt-1" / name).mkdir(parents=True)
    (tmp_path / "share").symlink_to(tmp_path / "storage")
    run = tmp_path / "share/x/trial-0-attempt-1"
    remove_all_except({"a"}, str(run))
    assert [one.name for one in run.iterdir()] == ["a"]
    remove_directory(f"{run}/a")
    remove_directory(f"file://{run}/gone")
    remove_directory(str(run.parent))
    assert list((tmp_path / "storage").iterdir()) == []
    assert home.exists()


def test_the_folders_above_the_storage_need_not_be_readable() -> None:
    """As a home directory with the mode 711 is for others."""
    with tempfile.TemporaryDirectory() as home:
        checkpoint = Path(home, "storage", "mine", "trial-0-attempt-1", "old")
        checkpoint.mkdir(parents=True)
        with unprivileged(Path(home)):
            remove_all_except((), str(checkpoint.parent))
            remove_directory(str(checkpoint.parent.parent))
        assert not checkpoint.parent.parent.exists()


@contextlib.contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Work as a user who may enter the folder and not read it, and who owns all that is in it."""
    is_root = os.geteuid() == 0
    for path in [*folder.rglob("*")] if is_root else ():
        os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o711 if is_root else 0o311)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)
