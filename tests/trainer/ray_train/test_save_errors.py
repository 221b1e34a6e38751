"""Whose error it is that a file is missing while a checkpoint is saved: the storage's, or the training function's."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds


@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize("missing", ["files", "directory", "target"])
def test_a_missing_file_of_the_checkpoint_is_the_users_and_one_of_the_storage_is_not(
    tmp_path: Path, missing: str, is_mounted: bool
) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem  # noqa: PLC0415 - heavy
    from ray.train import Checkpoint  # noqa: PLC0415 - heavy

    from trainer.ray_train.checkpoints.file_copy import copy_file  # noqa: PLC0415 - heavy
    from trainer.ray_train.train_session import storage_error  # noqa: PLC0415 - heavy

    folder, storage = tmp_path / "saved", tmp_path / "storage"
    for made in {folder, storage} - {{"directory": folder, "target": storage}.get(missing)}:
        made.mkdir()
    if missing == "target":
        (folder / "state").touch()
    local = LocalFileSystem()
    target, prefix = (local, f"{storage}/") if is_mounted else (SubTreeFileSystem(str(storage), local), "")
    with pytest.raises(FileNotFoundError) as raised:
        copy_file(local, str(folder / "state"), target, f"{prefix}state")
    found = storage_error(raised.value, Checkpoint.from_directory(str(folder)))
    assert found is (raised.value if missing == "target" else None)
