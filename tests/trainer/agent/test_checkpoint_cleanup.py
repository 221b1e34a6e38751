"""What the agent does about checkpoints that the service no longer needs."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import until
from trainer.agent.checkpoint_cleanup import CheckpointCleanup
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the agent's modules import Ray


def test_a_directory_is_removed_after_a_call_in_which_no_thread_could_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_remover: CheckpointRemover) -> None:
        raise RuntimeError("can't start new thread")

    directory = tmp_path / "obsolete"
    directory.mkdir()
    cleanup, answer = CheckpointCleanup(lambda _: None), dict[str, Any](obsolete=[str(directory)])
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointRemover, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            cleanup.apply(answer)
    cleanup.apply(answer)
    until(lambda: not directory.exists(), "it is removed")
