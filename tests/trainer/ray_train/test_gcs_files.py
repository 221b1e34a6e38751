"""Files in a bucket of Google Cloud Storage, whose answers pyarrow takes otherwise than those of S3."""

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.trainer.gcs_server import GcsServer

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds

CONTENT = bytes(range(256)) * 64
NAMES = {"model.bin", "vocabulary.json.gz", "settings/optimizer.bz2", "empty"}
PAGE = b"<html><body>Sign in</body></html>"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "settings").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(b"" if name == "empty" else CONTENT)
    return folder


def storage_of(gcs: GcsServer) -> "tuple[FileSystem, str]":
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - heavy

    storage, folder = FileSystem.from_uri(gcs.storage)
    return storage, f"{folder}/run/checkpoint"


def save(gcs: GcsServer, checkpoint: Path, patience_seconds: float = 0.0) -> None:
    """As Ray Train does, which makes the directory first."""
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415 - heavy

    storage, folder = storage_of(gcs)
    storage.create_dir(folder)
    save_files(str(checkpoint), folder, None, storage, patience_seconds=patience_seconds)


def uri_of(gcs: GcsServer, path: str) -> str:
    folder, mark, query = gcs.storage.partition("?")
    return f"{folder}/{path}{mark}{query}"


def test_a_checkpoint_is_saved_downloaded_and_deleted(gcs: GcsServer, checkpoint: Path, tmp_path: Path) -> None:
    from trainer.ray_train.checkpoints.checkpoint_download import download  # noqa: PLC0415 - heavy
    from trainer.slot.checkpoints.checkpoint_removal import remove_all_except, remove_directory  # noqa: PLC0415

    save(gcs, checkpoint)
    storage, folder = storage_of(gcs)
    download(storage, folder, tmp_path / "copy", 0.0)
    found = {path.relative_to(tmp_path / "copy").as_posix(): path for path in (tmp_path / "copy").rglob("*")}
    assert {name: found[name].read_bytes() for name in NAMES} == {
        name: (checkpoint / name).read_bytes() for name in NAMES
    }
    storage.create_dir(f"{folder}-2")
    remove_all_except(["checkpoint-2"], uri_of(gcs, "run"))
    assert [name for name in gcs.all_names() if "/checkpoint" in name] == ["runs/run/checkpoint-2/"]
    remove_directory(uri_of(gcs, "run"))
    assert not any(name.startswith("runs/run/") for name in gcs.all_names())


def test_a_directory_that_is_already_deleted_is_no_error(gcs: GcsServer) -> None:
    from trainer.slot.checkpoints.checkpoint_removal import remove_directory  # noqa: PLC0415 - heavy

    remove_directory(uri_of(gcs, "never/saved"))
    gcs.is_away = True
    with pytest.raises(OSError, match="UNAVAILABLE"):
        remove_directory(uri_of(gcs, "never/saved"))


def test_a_missing_checkpoint_is_told_from_an_empty_one(gcs: GcsServer, tmp_path: Path) -> None:
    from trainer.ray_train.checkpoints.checkpoint_download import download  # noqa: PLC0415 - heavy

    storage, folder = storage_of(gcs)
    with pytest.raises(FileNotFoundError):
        download(storage, f"{folder}-missing", tmp_path / "copy", 0.0)
    storage.create_dir(f"{folder}-empty")
    download(storage, f"{folder}-empty", tmp_path / "copy", 0.0)
    assert list(tmp_path.iterdir()) == []


def test_the_archive_of_an_empty_checkpoint_is_told_from_that_of_a_missing_one(gcs: GcsServer) -> None:
    from service.errors import NotFound  # noqa: PLC0415 - as below
    from service.operations.checkpoints.folder_archive import folder_archive  # noqa: PLC0415 - heavy

    storage, folder = storage_of(gcs)
    storage.create_dir(f"{folder}-empty")
    assert folder_archive("empty", uri_of(gcs, "run/checkpoint-empty"), gcs.storage).size > 0
    with pytest.raises(NotFound):
        folder_archive("missing", uri_of(gcs, "run/checkpoint-missing"), gcs.storage)


@pytest.mark.parametrize("methods", [{"GET"}, {"GET", "POST", "PUT"}], ids=["listing", "each call"])
def test_a_gateway_that_answers_for_the_bucket_is_an_error_of_the_storage(
    gcs: GcsServer, checkpoint: Path, methods: set[str]
) -> None:
    from trainer.ray_train.checkpoints.file_copy import save_files  # noqa: PLC0415 - heavy

    storage, folder = storage_of(gcs)
    storage.create_dir(f"{folder}/settings")
    gcs.page = lambda method, _: PAGE if method in methods else None
    with pytest.raises(OSError, match="google::cloud"):
        save_files(str(checkpoint), folder, None, storage, patience_seconds=0.0)


def test_a_page_in_place_of_rays_own_calls_is_no_error_of_the_users_code(gcs: GcsServer, checkpoint: Path) -> None:
    from pyarrow import ArrowInvalid  # noqa: PLC0415 - heavy
    from ray.train import Checkpoint  # noqa: PLC0415 - heavy

    from trainer.ray_train.train_session import storage_error  # noqa: PLC0415 - heavy

    storage, folder = storage_of(gcs)
    gcs.page = lambda _method, _path: PAGE
    with pytest.raises(ArrowInvalid) as raised:
        storage.create_dir(folder)
    assert isinstance(storage_error(raised.value, Checkpoint.from_directory(str(checkpoint))), OSError)
    assert storage_error(raised.value, None) is None, "the user's own upload function may have raised it"


def test_the_service_reads_a_file_without_the_gil(gcs: GcsServer, checkpoint: Path) -> None:
    """Or else this server, in the same process, could not answer, and pyarrow would give up after two minutes."""
    from service.operations.checkpoints.stored_folder import stored_folder  # noqa: PLC0415 - heavy

    save(gcs, checkpoint)
    folder = stored_folder(uri_of(gcs, "run/checkpoint"), gcs.storage)
    entries = {entry.name: entry for entry in folder.entries()}
    assert set(entries) == NAMES | {"settings"}
    assert all(abs(entries[name].modified_at - time.time()) < 600 for name in NAMES)
    gcs.calls.clear()
    with closing(folder.open(entries["vocabulary.json.gz"])) as file:
        file.seek(10)
        assert [file.read(5), file.read(5)] == [CONTENT[10:15], CONTENT[15:20]]
        file.seek(3)
        assert file.read(len(CONTENT)) == CONTENT[3:]
    assert len(gcs.calls) == 2, "one for the first pieces, and one for what was sought back to"
