"""Training functions that report in ways that careful ones do not. Shipped as `train.py`, the package of a trial."""

import contextlib
import errno
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
from ray.train import Checkpoint, CheckpointUploadMode


def catch_everything(config: dict[str, Any]) -> None:
    for step in range(1, 6):
        try:
            ray.train.report({"epoch": step})
        except BaseException:  # noqa: BLE001 - what a careless user writes
            if ray.train.get_context().get_world_rank() == 0:
                with Path(config["record"]).open("a") as file:
                    file.write(f"caught {step}\n")
    if config["then"] == "fails":
        raise ValueError("after the end")


def save_with_values_of_numpy_and_torch(config: dict[str, Any]) -> None:
    del config
    metrics = {"epoch": np.int64(1), "loss": np.float32(0.5), "array": np.ones(3), "blob": b"\xff", "nan": float("nan")}
    metrics |= {"tensor": torch.tensor(2.0, requires_grad=True), "tensors": torch.ones(3)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model").write_text("1")
        for _ in range(2):
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def save_the_last_in_the_background(config: dict[str, Any]) -> None:
    """The upload lasts longer than the worker waits for threads that a trial has left."""
    os.environ["OF_THE_TRIAL"] = "yes"
    returns = threading.Event()

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        returns.wait()
        deadline = time.monotonic() + 2
        while "OF_THE_TRIAL" in os.environ and time.monotonic() < deadline:
            time.sleep(0.01)
        record = [os.environ.get("OF_THE_TRIAL"), __name__ in sys.modules, os.getpid()]
        Path(config["record"]).write_text(" ".join(map(str, record)))
        saved: Checkpoint = ray.train.get_context().get_storage().persist_current_checkpoint(checkpoint, name)
        return saved

    mode = CheckpointUploadMode.ASYNC
    checkpoint = Checkpoint.from_directory(tempfile.mkdtemp())
    ray.train.report({"epoch": 1}, checkpoint, checkpoint_upload_mode=mode, checkpoint_upload_fn=upload)
    returns.set()


def say_process(config: dict[str, Any]) -> None:
    Path(config["record"]).write_text(str(os.getpid()))


def save_without_room_and_go_on(config: dict[str, Any]) -> None:
    def upload(*_: Any) -> Checkpoint:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    caught = BaseException if config["catches"] == "everything" else Exception
    for step in range(1, 4):
        with contextlib.suppress(caught):  # a careless user's
            checkpoint = Checkpoint.from_directory(tempfile.mkdtemp())
            ray.train.report({"epoch": step}, checkpoint, checkpoint_upload_fn=upload if step == 2 else None)
