"""The checkpoint directory of a command, which continues to write while it is saved."""

import shutil
import threading
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


def test_it_is_saved_while_the_command_replaces_and_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.train  # noqa: PLC0415 - heavy

    from trainer.worker.commands.command import CheckpointDirectory  # noqa: PLC0415 - heavy

    monkeypatch.setattr(ray.train, "get_checkpoint", lambda: None)
    directory, stop, has_begun = CheckpointDirectory(tmp_path), threading.Event(), threading.Event()

    def work() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            (tmp_path / "state.new").write_text(f"{step}\n")
            (tmp_path / "state.new").rename(tmp_path / "state")
            has_begun.set()

    command = threading.Thread(target=work)
    command.start()
    assert has_begun.wait(30)
    steps: list[int] = []
    while len(steps) < 200:
        with directory.changed() as checkpoint:
            if checkpoint is not None:
                steps.append(int((Path(checkpoint.path) / "state").read_text()))
    stop.set()
    command.join()
    assert steps == sorted(steps)


def test_it_is_saved_while_the_command_replaces_whole_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.train  # noqa: PLC0415 - heavy

    from trainer.worker.commands.command import CheckpointDirectory  # noqa: PLC0415 - heavy

    monkeypatch.setattr(ray.train, "get_checkpoint", lambda: None)
    (tmp_path / "state").touch()
    directory, stop = CheckpointDirectory(tmp_path), threading.Event()

    def work() -> None:
        folder = tmp_path / "shards" / "of this step"
        while not stop.is_set():
            folder.mkdir(parents=True)
            (folder / "0").touch()
            shutil.rmtree(folder.parent)

    command = threading.Thread(target=work)
    command.start()
    try:
        for _ in range(200):
            with directory.changed():
                pass
    finally:
        stop.set()
        command.join()
