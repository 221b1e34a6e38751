"""A training function whose DataLoader loses a process, as to the kernel's OOM killer."""

import os
import signal
from pathlib import Path
from typing import Any

import ray.train
from torch.utils.data import DataLoader, Dataset

KILLED_ONE = "low 0\nhigh 0\nmax 812\noom 1\noom_kill 1\n"


class Killed(Dataset[int]):
    """Its second item ends the process that loads it."""

    def __init__(self, counter: str | None) -> None:
        self._counter = counter

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 1:
            if self._counter is not None:
                Path(self._counter).write_text(KILLED_ONE)
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def load(config: dict[str, Any]) -> None:
    """`config["counter"]`: the file in which the kernel counts the kill; None for another cause."""
    ray.train.report({"epoch": 1})
    for _ in DataLoader(Killed(config["counter"]), num_workers=1):
        pass
