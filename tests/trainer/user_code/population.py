"""One weight that learns to be 1, as fast as `lr` lets it, on two ranks whose gradients are averaged.

It uses Ray Train and nothing of Paceline, and resumes from `ray.train.get_checkpoint()`.
"""

import tempfile
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint


def train_fn(config: dict[str, Any]) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    start = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"), weights_only=True)
        model.load_state_dict(state["model"])
        start = state["step"]
    write_down(config, "from", start, model)
    parallel = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=config["lr"])
    for step in range(start + 1, 7):
        loss = (parallel(torch.ones(1, 1)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        write_down(config, "step", step, model)
        with tempfile.TemporaryDirectory() as folder:
            rank = ray.train.get_context().get_world_rank()
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, Path(folder, "state.pt"))
            saved = Checkpoint.from_directory(folder) if rank == 0 else None
            ray.train.report({"step": step, "loss": float(1 - model.weight)}, checkpoint=saved)


def write_down(config: dict[str, Any], what: str, step: int, model: torch.nn.Linear) -> None:
    rank = ray.train.get_context().get_world_rank()
    with Path(config["record"]).open("a") as file:
        file.write(f"{rank} {config['lr']!r} {what} {step} {float(model.weight)!r}\n")
