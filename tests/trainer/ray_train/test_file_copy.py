"""Copies of files: one that does not arrive is an error, whatever the storage says and when."""

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
    from trainer.ray_train.file_copy import save_files  # noqa: PLC0415

    s3.denies_writing = lambda used, path: used == method and path.endswith("/model.bin")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        save_files(str(checkpoint), storage[1], None, storage[0], patience_seconds=0.0)
    assert "model.bin" not in saved(s3)


def test_a_file_that_a_bucket_denies_for_a_while_arrives_unchanged(
    s3: S3Server, storage: "Storage", checkpoint: Path
) -> None:
    from trainer.ray_train.file_copy import save_files  # noqa: PLC0415

    calls = itertools.count(1)
    s3.denies_writing = lambda _, __: next(calls) <= 3
    save_files(str(checkpoint), storage[1], None, storage[0])
    assert next(calls) > 4
    assert saved(s3) == {"model.bin", "vocabulary.json.gz", "settings/optimizer.bz2", "empty"}
    for name in saved(s3) - {"empty"}:
        with storage[0].open_input_stream(f"{storage[1]}/{name}", compression=None) as stream:
            assert stream.read() == CONTENT
