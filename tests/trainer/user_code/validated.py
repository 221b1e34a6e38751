"""A training function that has its checkpoints validated, as in Ray Train's guide. `config` says what goes wrong.

`gates`: a folder. The validation of a step ends when there is a file of its name.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.train
from ray.train import Checkpoint, CheckpointUploadMode, ValidationTaskConfig


def write_down(config: dict[str, Any], *words: Any) -> None:
    with Path(config["record"]).open("a") as file:
        file.write(" ".join(str(word) for word in words) + "\n")


def train_fn(config: dict[str, Any]) -> None:
    """Rank 0 alone saves. Each step is a report with a checkpoint that is validated."""
    rank = ray.train.get_context().get_world_rank()
    first = 1
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            first = int((Path(folder) / "step").read_text()) + 1
    mode = CheckpointUploadMode.ASYNC if config.get("async") else CheckpointUploadMode.SYNC
    task: Any = ValidationTaskConfig(fn_kwargs={"factor": 100}) if config.get("factor") else True
    for step in range(first, config["steps"] + 1):
        folder = tempfile.mkdtemp()
        if rank == 0:
            write_down(config, "step", step)
            (Path(folder) / "step").write_text(str(step))
        ray.train.report(
            {"epoch": step, "loss": 1 / step},
            checkpoint=Checkpoint.from_directory(folder),
            checkpoint_upload_mode=mode,
            delete_local_checkpoint_after_upload=True,
            validation=task,
        )
    if config.get("lists"):
        for one in ray.train.get_all_reported_checkpoints():
            write_down(config, "reported", one.status.name, sorted(one.metrics))


def ask_in_vain(config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ray.train.report({"epoch": 1}, checkpoint=Checkpoint.from_directory(folder), validation=True)


END: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "crash": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def validate(checkpoint: Checkpoint, config: dict[str, Any], factor: int = 10) -> dict[str, Any]:
    if config.get("vanishes"):
        shutil.rmtree(checkpoint.path)
    with checkpoint.as_directory() as folder:
        step = int((Path(folder) / "step").read_text())
    ours = [name for name in ("trainer", "service") if name in sys.modules]
    write_down(config, "validates", step, "in", os.getpid(), *ours)
    print(f"validating {step} with", os.environ.get("W_KEY"))  # noqa: T201
    while (gates := config.get("gates")) is not None and not Path(gates, str(step)).exists():
        time.sleep(0.05)
    if config.get("fails"):
        raise ValueError(f"step {step} cannot be validated with {os.environ.get('W_KEY')}")
    if (end := config.get("ends")) is not None:
        END[end]()
    return {"accuracy": factor * step, "said": f"the key is {os.environ.get('W_KEY')}"}
