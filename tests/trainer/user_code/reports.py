"""Training functions that report in ways that careful ones do not. Shipped as `train.py`, the package of a trial."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
from ray.train import Checkpoint


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
