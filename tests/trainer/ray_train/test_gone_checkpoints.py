"""Which checkpoints count as gone: those that a storage has not, and not those of a storage that is away."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from service.operations.checkpoints.folders import run_of
from service.store.tables import ExperimentRow
from tests.trainer.gcs_server import GcsServer
from tests.trainer.s3_server import S3Server
from trainer.storage_uri import split_query

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


@pytest.mark.parametrize("place", ["bucket", "bucket of Google", "directory"])
def test_a_checkpoint_is_gone_only_if_its_storage_is_there(
    s3: S3Server, gcs: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    from ray.train.v2._internal.execution import context as ray_context  # noqa: PLC0415 - heavy
    from ray.train.v2._internal.execution.storage import StorageContext  # noqa: PLC0415 - heavy

    from trainer.ray_train import train_session  # noqa: PLC0415 - heavy

    location = {"bucket": s3.storage, "bucket of Google": gcs.storage, "directory": str(tmp_path)}[place]
    storage = StorageContext(location, "run")
    context = SimpleNamespace(get_storage=lambda: storage)
    monkeypatch.setattr(ray_context, "get_train_context", lambda: context)
    folder, mark, query = split_query(location)
    checkpoint = f"{folder}/earlier/checkpoint{mark}{query}"
    files = storage.storage_filesystem
    path = f"{storage.storage_fs_path}/earlier/checkpoint"
    files.create_dir(path)
    with files.open_output_stream(f"{path}/state") as stream:
        stream.write(b"1")
    assert not train_session.is_gone(checkpoint)
    files.delete_dir(path)
    assert train_session.is_gone(checkpoint)
    s3.page = gcs.page = lambda _method, _path: b"<html></html>"
    assert train_session.is_gone(checkpoint) is (place == "directory"), "a page answers in the place of the bucket"
    s3.page = gcs.page = None
    files.delete_dir(storage.experiment_fs_path)
    assert not train_session.is_gone(checkpoint)


def test_no_checkpoint_is_gone_from_a_share_that_the_slot_itself_has_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray then leaves its file in the empty mount point, and makes the experiment's folder there."""
    from ray.train.v2._internal.execution import context as ray_context  # noqa: PLC0415 - heavy
    from ray.train.v2._internal.execution.storage import StorageContext  # noqa: PLC0415 - heavy

    from trainer.ray_train import train_session  # noqa: PLC0415 - heavy

    experiment = ExperimentRow(id="x-1", name="mine")
    earlier, later = (run_of(experiment, 0, number) for number in (1, 2))
    storage = StorageContext(str(tmp_path), later)
    context = SimpleNamespace(get_storage=lambda: storage)
    monkeypatch.setattr(ray_context, "get_train_context", lambda: context)
    assert not train_session.is_gone(f"{tmp_path}/{earlier}/checkpoint")
    assert not train_session.is_gone(f"file://{tmp_path}/{earlier}/checkpoint/")
    (tmp_path / earlier).mkdir()
    assert train_session.is_gone(f"{tmp_path}/{earlier}/checkpoint")


def test_a_storage_that_cannot_be_opened_has_lost_no_checkpoint() -> None:
    """For some URIs pyarrow calls the storage as soon as it opens it."""
    from trainer.ray_train import train_session  # noqa: PLC0415 - heavy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_session, "Checkpoint", refuse)
        assert not train_session.is_gone("s3://bucket/run/checkpoint")


def refuse(uri: str) -> None:
    raise OSError(f"{uri} cannot be opened")
