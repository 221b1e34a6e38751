"""Training functions that look at their GPU: its memory at the first line, a process group, an allocation too many."""

import time
from typing import Any

import ray.train.torch
import torch
import torch.distributed as dist
from timestamps import Timestamps


def used_megabytes(device: torch.device) -> float:
    """The memory that all processes together use on the GPU, with this process's CUDA context."""
    if device.type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 2**20


def remake_group(config: dict[str, Any]) -> None:
    """Every so many trials, one asks for more memory than any GPU has, and fails."""
    with Timestamps(config) as timestamps:
        device = ray.train.torch.get_device()
        used = used_megabytes(device)
        ranks = torch.ones(1, device=device)
        dist.all_reduce(ranks)
        filled = torch.ones(config["megabytes"] * 2**18, device=device)
        timestamps.report({"used": used, "ranks": ranks.item(), "sum": filled.sum().item()})
        if (config["number"] + 1) % config["fails_every"] == 0:
            torch.empty(2**50, device=device)


def share(config: dict[str, Any]) -> None:
    """Compute for some seconds on a GPU that another trial may use, too."""
    with Timestamps(config) as timestamps:
        device = ray.train.torch.get_device()
        matrix = torch.rand(256, 256, device=device)
        end = time.monotonic() + config["seconds"]
        while time.monotonic() < end:
            matrix = torch.softmax(matrix @ matrix, dim=0)
        timestamps.report({"used": used_megabytes(device), "sum": matrix.sum().item()})
