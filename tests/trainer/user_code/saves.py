"""What a test of checkpoints runs on the workers. It travels as a user's package."""

import contextlib
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import ray.data
import ray.train
from ray.train import Checkpoint


def save(text: str, name: str | None = None, **metrics: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_text(text)
        saved = Checkpoint.from_directory(folder)
        ray.train.report({"text": text, **metrics}, checkpoint=saved, checkpoint_dir_name=name)


def save_and_fail(config: dict[str, Any]) -> None:
    save("saved", config["name"])
    raise ValueError("at the end")


def save_badly_named(config: dict[str, Any]) -> None:
    """Its second checkpoint has a file whose name is not UTF-8."""
    save("first")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "caf\udce9").write_text("state")
        ray.train.report({"text": "second"}, checkpoint=Checkpoint.from_directory(folder))


def save_links(config: dict[str, Any]) -> None:
    """Its second checkpoint has a link to a folder elsewhere, and the `bad` one if there is one."""
    save("first")
    with tempfile.TemporaryDirectory() as elsewhere, tempfile.TemporaryDirectory() as folder:
        Path(elsewhere, "state").write_text("second")
        Path(folder, "linked").symlink_to(elsewhere)
        if config["bad"] is not None:
            Path(folder, "bad").symlink_to(config["bad"])
        ray.train.report({"text": "second"}, checkpoint=Checkpoint.from_directory(folder))


def save_without_descriptors(config: dict[str, Any]) -> None:
    """Its second checkpoint is saved by a process that can open no file any more."""
    save("first")
    folder, opened = Path(tempfile.mkdtemp()), []  # its removal would fail, too
    (folder / "state").write_text("second")
    saved = Checkpoint.from_directory(str(folder))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Below the descriptors that threads of Ray open and close: what one of them closes leaves no room.
    resource.setrlimit(resource.RLIMIT_NOFILE, (10, hard))
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    ray.train.report({"text": "second"}, checkpoint=saved)


def read_again(config: dict[str, Any]) -> None:
    """Reads the checkpoint that it has resumed from after it has saved newer ones, and they are known."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        save("first", config["name"])
        return
    with checkpoint.as_directory() as folder:
        for number in range(4):
            save(f"newer {number}")
        ray.train.report({"text": Path(folder, "state").read_text()})


def read(config: dict[str, Any]) -> None:
    """Reads the checkpoint that it resumes from. The storage is `away`, or `back` after that."""
    checkpoint = ray.train.get_checkpoint()
    assert checkpoint is not None
    if config["storage"] == "away":
        shutil.rmtree(ray.train.get_context().get_storage().experiment_fs_path)
    try:
        if config["by"] == "method":
            checkpoint.to_directory()
        elif config["by"] == "task":
            file = Path(checkpoint.path, "state")
            ray.data.range(1).map_batches(lambda batch: {**batch, "text": [file.read_text()]}).materialize()
        else:
            Path(checkpoint.path, "state").read_text()
    except OSError:
        if config["storage"] == "back":
            Path(checkpoint.path).mkdir()
        raise


def lose_the_newest(config: dict[str, Any]) -> None:
    """Saves four times in all. The first attempt deletes its third checkpoint, and dies."""
    checkpoint, saved = ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = int(Path(folder, "state").read_text())
    for number in range(saved + 1, 5):
        save(str(number), epoch=number)
        if number == 3 and checkpoint is None:
            shutil.rmtree(ray.train.get_checkpoint().path)
            os.kill(os.getpid(), signal.SIGKILL)
