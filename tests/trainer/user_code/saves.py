"""What a test of checkpoints runs on the workers. It travels as a user's package."""

import tempfile
from pathlib import Path
from typing import Any

import ray.train
from ray.train import Checkpoint


def save(text: str, name: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_text(text)
        ray.train.report({"text": text}, checkpoint=Checkpoint.from_directory(folder), checkpoint_dir_name=name)


def save_and_fail(config: dict[str, Any]) -> None:
    save("saved", config["name"])
    raise ValueError("at the end")


def save_badly_named(config: dict[str, Any]) -> None:
    """Its second checkpoint has a file whose name is not UTF-8."""
    save("first")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "caf\udce9").write_text("state")
        ray.train.report({"text": "second"}, checkpoint=Checkpoint.from_directory(folder))


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
