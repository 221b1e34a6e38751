"""The files of a checkpoint's directory, while they change and where they cannot be read."""

import contextlib
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.ray_train.checkpoints.local_files import BadLink, entries_below

Scan = Callable[[Any], Any]


def names(directory: Path) -> list[str]:
    return [name for name, _ in entries_below(str(directory))]


@pytest.fixture
def scanning(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scan], None]:
    """Sets what is called before each listing of a folder: the tests may run as root, who can read everything."""
    listed = os.scandir

    def set_first(first: Scan) -> None:
        def scan(folder: Any) -> Any:
            first(folder)
            return listed(folder)

        monkeypatch.setattr(os, "scandir", scan)

    return set_first


def refusing(refused: Path, code: int) -> Scan:
    def refuse(folder: Any) -> None:
        if Path(folder) == refused:
            raise OSError(code, os.strerror(code), str(refused))

    return refuse


@pytest.mark.parametrize("below", ["", "inner"])
def test_a_link_to_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, scanning: Callable[[Scan], None], below: str
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "checkpoint"
    (elsewhere / "inner").mkdir(parents=True)
    folder.mkdir()
    (folder / "linked").symlink_to(elsewhere)
    scanning(refusing(folder / "linked" / below, errno.EACCES))
    with pytest.raises(BadLink, match=r"the link 'linked' to .* leads to what cannot be read .*Permission denied"):
        names(folder)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_link_is_not_blamed_for_the_storage_or_a_lack_of_descriptors(
    tmp_path: Path, scanning: Callable[[Scan], None], code: int
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "linked").symlink_to(tmp_path / "elsewhere")
    scanning(refusing(tmp_path / "checkpoint" / "linked", code))
    with pytest.raises(OSError, match=re.escape(os.strerror(code))):
        names(tmp_path / "checkpoint")


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
def test_a_link_whose_target_cannot_be_looked_at_is_named_unless_the_storage_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Entry:
        name, path = "linked", str(tmp_path / "linked")

        def is_symlink(self) -> bool:
            return True

        def stat(self) -> None:
            raise OSError(code, os.strerror(code), self.path)

    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(os, "scandir", lambda _: contextlib.nullcontext([Entry()]))
    with pytest.raises(BadLink if code == errno.ENOENT else OSError, match=r"linked"):
        names(tmp_path)


def test_a_file_or_folder_that_is_removed_meanwhile_is_left_out(
    tmp_path: Path, scanning: Callable[[Scan], None]
) -> None:
    (tmp_path / "a" / "inner").mkdir(parents=True)
    for name in ("state", "state.tmp"):
        (tmp_path / "a" / name).touch()

    def remove(folder: Any) -> None:
        if Path(folder).name == "inner":
            (tmp_path / "a" / "inner").rmdir()
            (tmp_path / "a" / "state.tmp").rename(tmp_path / "a" / "state")

    scanning(remove)
    assert names(tmp_path) == ["a", "a/inner", "a/state"]


@pytest.mark.parametrize("target", [".", "..", "/", "../.."])
def test_a_link_to_a_folder_in_which_the_target_of_another_link_is_is_named(tmp_path: Path, target: str) -> None:
    elsewhere, folder = tmp_path / "data" / "cache", tmp_path / "checkpoint"
    elsewhere.mkdir(parents=True)
    folder.mkdir()
    (elsewhere / "bad").symlink_to(target)
    (folder / "linked").symlink_to(elsewhere)
    with pytest.raises(BadLink, match=f"the link 'linked/bad' to {target!r} leads to a folder that it is in"):
        names(folder)


@pytest.mark.parametrize("made", [True, False])
def test_the_directory_itself_must_be_there(tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "checkpoint").touch()
    with pytest.raises(NotADirectoryError if made else FileNotFoundError):
        names(tmp_path / "checkpoint")
