"""The folder of an unpacked package is the same for each trial, whatever the trials before have written into it."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from trainer.worker.user_code.package_listing import LISTING
from trainer.worker.user_code.user_code import lock_package

FILES = {"train.py": "x = 1", "data/small.csv": "1,2", "src/model.py": "y = 1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "paceline-slot.a.1"


def enter(folder: Path) -> int:
    """As a rank does it. Returns what keeps the folder in use."""
    return lock_package(folder, "package.zip", a_zip)


def a_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("outputs/", "")
        for name, text in FILES.items():
            archive.writestr(name, text)
    return content.getvalue()


def contents(folder: Path) -> dict[str, str]:
    """The contents of the visible files and folders."""
    visible = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else "" for path in visible}


ORIGINAL = {**FILES, "outputs": "", "data": "", "src": ""}


def test_what_a_trial_has_added_is_removed_before_the_next_one(folder: Path) -> None:
    used = enter(folder)
    (folder / "last.pt").write_text("epoch 2")
    (folder / "outputs" / "log.txt").write_text("a line")
    (folder / "runs" / "1").mkdir(parents=True)
    (folder / "runs" / "1" / "events").write_text("events")
    (folder / "here").symlink_to(folder / "data")
    os.close(used)
    os.close(enter(folder))
    assert contents(folder) == ORIGINAL


def test_what_a_trial_has_changed_or_removed_is_as_before_for_the_next_one(folder: Path) -> None:
    used = enter(folder)
    (folder / "data" / "small.csv").write_text("3,4")
    (folder / "src" / "model.py").unlink()
    (folder / "src").rmdir()
    (folder / "src").write_text("a file now")
    (folder / "outputs").rmdir()
    os.close(used)
    os.close(enter(folder))
    assert contents(folder) == ORIGINAL


def test_it_is_restored_even_if_a_trial_has_emptied_it(folder: Path) -> None:
    used = enter(folder)
    for path in [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]:
        path.unlink()
    os.close(used)
    os.close(enter(folder))
    assert contents(folder) == ORIGINAL


def test_compiled_modules_of_the_package_stay(folder: Path) -> None:
    used = enter(folder)
    cache = folder / "src" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_text("compiled")
    os.close(used)
    os.close(enter(folder))
    assert (cache / "model.cpython-311.pyc").exists()


def test_what_a_rank_has_written_stays_while_a_rank_of_the_same_node_uses_it(folder: Path) -> None:
    first = enter(folder)
    (folder / "shared").write_text("by the first")
    second = enter(folder)
    os.close(first)
    assert (folder / "shared").exists()
    os.close(second)
    os.close(enter(folder))
    assert not (folder / "shared").exists()


def test_a_file_that_is_restored_is_a_new_one(folder: Path) -> None:
    """A process may have mapped the old one, as it does with compiled libraries."""
    used = enter(folder)
    kept, changed = folder / "src" / "model.py", folder / "data" / "small.csv"
    changed.write_text("3,4")
    before = kept.stat().st_ino, changed.stat().st_ino
    with changed.open() as old:
        os.close(used)
        os.close(enter(folder))
        assert old.read() == "3,4"
    assert (kept.stat().st_ino, changed.stat().st_ino != before[1]) == (before[0], True)


@pytest.mark.parametrize("content", [None, "", '{"folders": [], "fi', "[]", "{}"])
def test_without_a_listing_the_folder_stays_as_it_is(folder: Path, content: str | None) -> None:
    used = enter(folder)
    (folder / "last.pt").write_text("epoch 2")
    (folder / LISTING).unlink()
    if content is not None:
        (folder / LISTING).write_text(content)
    os.close(used)
    os.close(enter(folder))
    assert contents(folder) == {**ORIGINAL, "last.pt": "epoch 2"}


def test_a_validation_removes_nothing(folder: Path) -> None:
    os.close(enter(folder))
    (folder / "labels.txt").write_text("of this trial")
    os.close(lock_package(folder, "package.zip", a_zip, restores=False))
    assert (folder / "labels.txt").exists()
