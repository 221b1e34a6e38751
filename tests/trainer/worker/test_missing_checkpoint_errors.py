"""Errors of libraries that read a checkpoint's files, and do not find them: each library has its own words."""

from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from trainer.worker.failures import LOST, USER_ERROR, Failure, describe

pytestmark = pytest.mark.ray  # Ray's filters of warnings: importing it

WORDS = {
    "open": "[Errno 2] No such file or directory: '{}'",
    "pyarrow": "[Errno 2] Failed to open local file '{}'. Detail: [errno 2] No such file or directory",
    "parquet": "{}",
    "safetensors": "No such file or directory: {}",
}

OF_TASK = """ray::MapBatches(f)() (pid=1, ip=10.0.0.7)
  File "/package/train.py", line 3, in f
    return read(path)
FileNotFoundError: {}

The above exception was the direct cause of the following exception:

ray::MapBatches(f)() (pid=1, ip=10.0.0.7)
    raise UserCodeException("UDF failed") from e
ray.data.exceptions.UserCodeException: UDF failed to process a data block."""


def described(error: Exception, checkpoint: Path) -> Failure:
    return describe(error, rank=0, world_size=1, is_importing=False, folder=None, resume=str(checkpoint))


@pytest.mark.parametrize("in_task", [True, False])
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_library_that_does_not_find_the_checkpoint_finds_it_missing(
    tmp_path: Path, words: str, *, in_task: bool
) -> None:
    def failure(file: Path) -> Failure:
        raised = FileNotFoundError(words.format(file))
        task = RayTaskError("MapBatches(f)", OF_TASK.format(raised), raised)
        return described(task if in_task else raised, checkpoint)

    checkpoint = tmp_path / "checkpoint"
    missing = failure(checkpoint / "state")
    assert (missing.kind, missing.is_checkpoint_missing) == (LOST, True)
    assert f"the checkpoint {checkpoint} is not on the storage: " in missing.message
    for other in (tmp_path / "checkpoint-2" / "state", Path(f"/other{checkpoint}/state")):
        assert failure(other).kind == USER_ERROR
    of_open = FileNotFoundError(2, "No such file or directory", f"{checkpoint}-2")
    assert described(of_open, checkpoint).kind == USER_ERROR
    checkpoint.mkdir()
    assert failure(checkpoint / "misspelled").kind == USER_ERROR


def test_a_file_that_a_checkpoint_in_a_bucket_lacks_is_the_users_mistake() -> None:
    """What is in the bucket is unknown here; the methods of the checkpoint say if all of it is gone."""
    checkpoint = "s3://bucket/experiment/checkpoint"
    for words in WORDS.values():
        raised = FileNotFoundError(words.format(f"{checkpoint}/misspelled"))
        described = describe(raised, rank=0, world_size=1, is_importing=False, folder=None, resume=checkpoint)
        assert (described.kind, described.is_checkpoint_missing) == (USER_ERROR, False)
