"""The checkpoint directory of a command, which continues to write while it is saved."""

import errno
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import set_constant
from trainer.worker.commands.snapshot import Later, Line, Snapshot, Unchanged
from trainer.worker.failures import BadCommandFile, describe
from trainer.worker.node_disk import NodeDiskFailed

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


def test_it_is_saved_while_the_command_replaces_and_removes_files(tmp_path: Path) -> None:
    from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

    directory, stop, has_begun = CheckpointDirectory(tmp_path), threading.Event(), threading.Event()

    def work() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            (tmp_path / "state.new").write_text(f"{step}\n")
            (tmp_path / "state.new").rename(tmp_path / "state")
            has_begun.set()

    command = threading.Thread(target=work)
    command.start()
    assert has_begun.wait(30)
    steps: list[int] = []
    while len(steps) < 200:
        with directory.changed() as checkpoint:
            if checkpoint is not None:
                steps.append(int((Path(checkpoint.path) / "state").read_text()))
    stop.set()
    command.join()
    assert steps == sorted(steps)


def test_it_is_saved_while_the_command_replaces_whole_folders(tmp_path: Path) -> None:
    from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

    (tmp_path / "state").touch()
    directory, stop = CheckpointDirectory(tmp_path), threading.Event()

    def work() -> None:
        folder = tmp_path / "shards" / "of this step"
        while not stop.is_set():
            folder.mkdir(parents=True)
            (folder / "0").touch()
            shutil.rmtree(folder.parent)

    command = threading.Thread(target=work)
    command.start()
    try:
        for _ in range(200):
            with directory.changed():
                pass
    finally:
        stop.set()
        command.join()


class Saving:
    """A directory in which a state of a size is saved at a time, and taken for a line of the time 5."""

    def __init__(self, folder: Path) -> None:
        from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

        (folder / "saved").mkdir()
        self.directory = CheckpointDirectory(folder / "saved")
        self._new = folder / "new"

    def save(self, at: int, size: int = 1) -> None:
        self._new.write_text("x" * size)
        os.utime(self._new, ns=(at, at))
        self._new.rename(self.directory.path / "state")

    def take(self, at: int, *, is_certain: bool = True, is_quiet: bool = True, size: int = 1) -> Any:
        self.save(at, size)
        return self.directory.take(Line(5, is_certain=is_certain, is_quiet=lambda: is_quiet))


@pytest.fixture
def saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saving:
    from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

    set_constant(monkeypatch, CheckpointDirectory._has_no_room_for, "MAX_WAITING_BYTES", 100)
    return Saving(tmp_path)


def test_a_state_that_was_saved_before_the_line_belongs_to_it(saving: Saving) -> None:
    snapshot = saving.take(4, is_quiet=False)
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.path / "state").read_text() == "x"
    assert saving.directory.take(Line(9, is_certain=True, is_quiet=lambda: True)) == Unchanged()


def test_a_state_that_was_saved_after_the_line_belongs_to_a_later_one(saving: Saving) -> None:
    assert saving.take(6) == Later()
    assert isinstance(saving.directory.take(Line(7, is_certain=True, is_quiet=lambda: True)), Snapshot)


@pytest.mark.parametrize(("at", "is_certain"), [(5, True), (4, False)])
def test_what_may_be_later_belongs_to_the_line_if_the_command_is_quiet(
    saving: Saving, at: int, is_certain: bool
) -> None:
    assert saving.take(at, is_certain=is_certain, is_quiet=False) == Later()
    assert isinstance(saving.take(at, is_certain=is_certain), Snapshot)


def test_few_large_snapshots_wait_at_a_time(saving: Saving) -> None:
    first, second = (saving.take(at, size=60) for at in (1, 2))
    assert saving.take(3, size=60) == Later()
    saving.directory.release(first)
    assert isinstance(saving.take(4, size=60), Snapshot)
    assert second.is_intact()


def test_small_snapshots_wait_for_many_reports(saving: Saving) -> None:
    assert all(isinstance(saving.take(1, size=size), Snapshot) for size in range(1, 11))


def test_a_snapshot_shows_that_the_command_has_written_into_its_file(saving: Saving) -> None:
    snapshot = saving.take(4)
    assert snapshot.is_intact()
    (saving.directory.path / "state").write_text("y")
    assert not snapshot.is_intact()


def test_folders_that_are_links_are_saved_with_their_files(tmp_path: Path) -> None:
    from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

    saved, elsewhere = tmp_path / "saved", tmp_path / "elsewhere"
    (saved / "real-1" / "shards").mkdir(parents=True)
    elsewhere.mkdir()
    directory = CheckpointDirectory(saved)
    (saved / "real-1" / "shards" / "0").write_text("weights")
    (elsewhere / "vocabulary").write_text("words")
    (saved / "latest").symlink_to("real-1")
    (saved / "tokenizer").symlink_to(elsewhere)
    (saved / "nothing").symlink_to("none")
    with directory.changed() as checkpoint:
        assert checkpoint is not None
        root = Path(checkpoint.path)
        found = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
        assert not any(path.is_symlink() for path in root.rglob("*"))
    assert found == {
        "real-1/shards/0": "weights",
        "latest/shards/0": "weights",
        "tokenizer/vocabulary": "words",
    }


@pytest.mark.parametrize(
    ("link", "target", "error"),
    [
        ("loop", "loop", "Too many levels of symbolic links"),
        ("itself", ".", "A link to a folder that it is in"),
        ("deep/above", "..", "A link to a folder that it is in"),
    ],
)
def test_a_link_without_end_is_an_error_of_the_users_that_names_it(
    tmp_path: Path, link: str, target: str, error: str
) -> None:
    from trainer.worker.commands.checkpoint_directory import CheckpointDirectory  # noqa: PLC0415 - heavy

    directory = CheckpointDirectory(tmp_path)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(target)
    with pytest.raises(BadCommandFile) as raised:
        directory.take(Line(5, is_certain=True, is_quiet=lambda: True))
    failure = describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None)
    message = f"the command's checkpoint directory cannot be saved: [Errno 40] {error}: '{tmp_path / link}'"
    assert (failure.kind, failure.message) == ("user_error", f"{message} (rank 0 of 1)")


@pytest.mark.parametrize("full", ["folder", "file"])
def test_a_full_disk_of_the_node_is_not_the_users_error(
    saving: Saving, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """It may have no room for a folder or, where it has no links either, for a copy."""

    def no_room(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "state")

    if full == "folder":
        monkeypatch.setattr(tempfile, "mkdtemp", no_room)
    else:
        monkeypatch.setattr(os, "link", no_room)
        monkeypatch.setattr(shutil, "copy2", no_room)
    with pytest.raises(NodeDiskFailed) as raised:
        saving.take(4)
    failure = describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None)
    assert failure.kind == "lost"
    assert failure.message == (
        "the command's checkpoint directory cannot be saved: [Errno 28] No space left on device: 'state'; "
        "the node's temporary directory must have room and work (rank 0 of 1)"
    )


def test_a_rank_that_can_open_no_more_files_blames_no_disk(saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "state")

    monkeypatch.setattr(tempfile, "mkdtemp", no_descriptor)
    with pytest.raises(NodeDiskFailed) as raised:
        saving.take(4)
    failure = describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None)
    assert failure.kind == "lost"
    assert "[Errno 24] Too many open files: 'state' (rank 0 of 1); the process has reached its limit" in failure.message
    assert "must have room" not in failure.message
