"""What training functions meet after an error of their code on a GPU, acted without one."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray.train
import torch

WATCHDOG = b"""\
IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && \
"index out of bounds"` failed.
[rank1]:[E1127 04:18:39.727913168 ProcessGroupNCCL.cpp:2119] [PG ID 1 PG GUID 0(default_pg) Rank 1] Process group \
watchdog thread terminated with exception: CUDA error: device-side assert triggered
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
"""
"""What torch 2.11 printed on a GPU."""


def train_fn(config: dict[str, Any]) -> None:
    behaviour = globals()[config["do"]]
    behaviour(config)


def be_ended_by_torch(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        os.write(2, WATCHDOG)
        os.abort()
    time.sleep(600)


def say_pid(config: dict[str, Any]) -> None:
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    ray.train.report({"epoch": 1})


def spoil_the_reset(config: dict[str, Any]) -> None:
    """Leave a library that raises an error whenever it is used, as torch is after an error on its GPU."""

    def broken() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    torch.default_generator = SimpleNamespace(seed=broken, initial_seed=lambda: 0)  # type: ignore[assignment]
    ray.train.report({"epoch": 1})


def spoil_the_reset_and_fail(config: dict[str, Any]) -> None:
    spoil_the_reset(config)
    raise ValueError("a bad end")
