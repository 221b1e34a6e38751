"""The checkpoint that an attempt resumes from, when its bucket refuses calls."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import set_constant
from trainer.worker.failures import LOST, NotRead, describe, not_read

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


def test_reading_it_is_repeated_and_its_failure_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem  # noqa: PLC0415 - heavy
    from ray.train import Checkpoint  # noqa: PLC0415

    from trainer.ray_train.resumed_checkpoint import ResumedCheckpoint  # noqa: PLC0415

    set_constant(monkeypatch, ResumedCheckpoint.to_directory, "PAUSES_SECONDS", (0.0, 0.0))
    calls = []

    def refuse(_: Checkpoint, path: Any = None) -> str:
        calls.append(path)
        if len(calls) < 3:
            raise OSError("AWS Error SLOW_DOWN")
        return "here"

    monkeypatch.setattr(Checkpoint, "to_directory", refuse)
    checkpoint = ResumedCheckpoint(str(tmp_path), not_read)
    checkpoint.filesystem = SubTreeFileSystem(str(tmp_path), LocalFileSystem())  # stands for a bucket
    assert checkpoint.to_directory("there") == "here"
    assert calls == ["there"] * 3

    set_constant(monkeypatch, ResumedCheckpoint.to_directory, "PAUSES_SECONDS", ())
    calls.clear()
    with pytest.raises(NotRead, match="could not be read: AWS Error SLOW_DOWN; every node must be able") as raised:
        checkpoint.to_directory()
    assert describe(raised.value, rank=0, world_size=1, is_importing=False, folder=None).kind == LOST
