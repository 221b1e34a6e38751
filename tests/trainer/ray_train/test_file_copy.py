"""Copies of files: one that does not arrive is an error, whatever the storage says and when."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.trainer.s3_server import S3Server

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    Storage = tuple[FileSystem, str]

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing moto takes seconds

COPY = "runs/copy/"
CONTENT = bytes(range(256)) * 64


@pytest.fixture
def storage(s3: S3Server) -> "Iterator[Storage]":
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - heavy

    filesystem, folder = FileSystem.from_uri(s3.storage)
    yield filesystem, f"{folder}/copy"
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(folder)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "settings").mkdir(parents=True)
    for name in ("model.bin", "vocabulary.json.gz", "settings/optimizer.bz2"):
        (folder / name).write_bytes(CONTENT)
    (folder / "empty").touch()
    return folder


def saved(s3: S3Server) -> set[str]:
    return {name.removeprefix(COPY) for name in s3.names() if name.startswith(COPY)}


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_file_that_a_bucket_denies_to_the_last_is_an_error(
    s3: S3Server, storage: "Storage", checkpoint: Path, method: str
) -> None:
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    s3.denies_writing = lambda used, path: used == method and path.endswith("/model.bin")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        save_files(str(checkpoint), storage[1], None, storage[0], patience_seconds=0.0)
    assert "model.bin" not in saved(s3)


def test_a_file_that_a_bucket_denies_for_a_while_arrives_unchanged(
    s3: S3Server, storage: "Storage", checkpoint: Path
) -> None:
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    calls = itertools.count(1)
    s3.denies_writing = lambda _, __: next(calls) <= 3
    save_files(str(checkpoint), storage[1], None, storage[0])
    assert next(calls) > 4
    assert saved(s3) == {"model.bin", "vocabulary.json.gz", "settings/optimizer.bz2", "empty"}
    for name in saved(s3) - {"empty"}:
        with storage[0].open_input_stream(f"{storage[1]}/{name}", compression=None) as stream:
            assert stream.read() == CONTENT


@pytest.mark.parametrize("place", ["bucket", "directory"])
def test_what_links_lead_to_is_saved(s3: S3Server, storage: "Storage", tmp_path: Path, place: str) -> None:
    from pyarrow.fs import FileSelector, LocalFileSystem  # noqa: PLC0415 - heavy

    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    folder, elsewhere = tmp_path / "checkpoint", tmp_path / "cache"
    for made in (folder / "own", elsewhere / "inner"):
        made.mkdir(parents=True)
    (elsewhere / "inner" / "weights").write_bytes(CONTENT)
    (folder / "shared").symlink_to(elsewhere)
    (folder / "latest").symlink_to("shared/inner/weights")
    (folder / "own" / "again").symlink_to("../shared")
    target, path = storage if place == "bucket" else (LocalFileSystem(), str(tmp_path / "saved"))
    target.create_dir(path)
    save_files(str(folder), path, None, target)
    files = [one for one in target.get_file_info(FileSelector(path, recursive=True)) if one.is_file]
    assert {one.path.removeprefix(f"{path}/"): one.size for one in files} == dict.fromkeys(
        ("shared/inner/weights", "latest", "own/again/inner/weights"), len(CONTENT)
    )
    if place == "directory":
        copies = [*Path(path).rglob("*")]
        assert len(copies) > len(files)
        assert not any(one.is_symlink() for one in copies)


PAGE = b"<html><body>Sign in</body></html>"
PAGES = {
    "a page": PAGE,
    "a page with the size of each file": PAGE.replace(b" ", b" " * (len(CONTENT) - len(PAGE) + 1)),
    "nothing": b"",
}


@pytest.mark.parametrize("answered", ["each call", "writing", "writing and reading a file"])
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_file_for_which_a_gateway_has_answered_is_an_error(
    s3: S3Server, storage: "Storage", checkpoint: Path, page: bytes, answered: str
) -> None:
    """Pyarrow gives no error; a page has the size of a file, if that is asked for the file alone."""
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    methods = {"each call": "HEAD GET PUT POST", "writing": "PUT POST", "writing and reading a file": "HEAD PUT POST"}
    s3.page = lambda method, _: page if method in methods[answered].split() else None
    with pytest.raises(OSError, match="the storage accepted empty and 3 more, but does not list it"):
        save_files(str(checkpoint), storage[1], None, storage[0], patience_seconds=0.0)
    s3.page = None
    assert saved(s3) == set()


def test_files_for_which_a_gateway_answers_for_a_while_arrive(
    s3: S3Server, storage: "Storage", checkpoint: Path
) -> None:
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    calls = itertools.count(1)
    s3.page = lambda _, path: PAGE if "/model.bin" in path and next(calls) <= 3 else None
    s3.answers.clear()
    save_files(str(checkpoint), storage[1], None, storage[0])
    assert next(calls) > 4
    assert saved(s3) == {"model.bin", "vocabulary.json.gz", "settings/optimizer.bz2", "empty"}
    begun = [line for line in s3.answers if "?uploads " in line and "model.bin" not in line]
    assert len(begun) == 3, "those that the storage has are not saved again"


def test_many_files_are_confirmed_with_one_call(s3: S3Server, storage: "Storage", tmp_path: Path) -> None:
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415

    (folder := tmp_path / "many").mkdir()
    for number in range(30):
        (folder / f"{number}.bin").write_bytes(CONTENT)
    s3.answers.clear()
    save_files(str(folder), storage[1], None, storage[0])
    assert [line.split()[1] for line in s3.answers if line.split()[1] not in ("PUT", "POST")] == ["GET"]


def test_a_file_that_another_rank_saves_under_the_same_name_is_no_error(
    storage: "Storage", checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.ray_train.checkpoints import file_copy  # noqa: PLC0415

    copy_file = file_copy.copy_file

    def copy_before_the_other_rank(source: "FileSystem", path: str, target: "FileSystem", target_path: str) -> int:
        size = copy_file(source, path, target, target_path)
        with target.open_output_stream(target_path) as stream:
            stream.write(b"of the other rank")
        return size

    monkeypatch.setattr(file_copy, "copy_file", copy_before_the_other_rank)
    file_copy.save_files(str(checkpoint), storage[1], None, storage[0], patience_seconds=0.0)


def test_a_listing_that_is_refused_for_a_while_copies_no_file_again(
    s3: S3Server, storage: "Storage", checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.ray_train.checkpoints import file_copy  # noqa: PLC0415

    listed, calls = file_copy._listed, itertools.count()

    def refused_at_first(filesystem: "FileSystem", folder: str) -> set[str]:
        if next(calls) == 0:
            raise OSError("SlowDown")
        return listed(filesystem, folder)

    monkeypatch.setattr(file_copy, "_listed", refused_at_first)
    s3.answers.clear()
    file_copy.save_files(str(checkpoint), storage[1], None, storage[0])
    assert next(calls) == 2
    assert len([line for line in s3.answers if "?uploads " in line]) == 4
