"""A training function for any number of workers: it continues from its checkpoint, however many there were before.

All workers together go through `batch_size` rows in a step, so the number of workers changes how fast a trial trains,
and not what it learns.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import ray.train
import ray.train.torch
import torch

ROWS = 2048


def train_fn(config: Mapping[str, float]) -> None:
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(ROWS, 8, generator=generator)
    targets = features.sum(dim=1, keepdim=True) + 0.1 * torch.randn(ROWS, 1, generator=generator)
    layer = torch.nn.Linear(8, 1)
    first = load(layer)
    model = ray.train.torch.prepare_model(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(first, int(config["epochs"]) + 1):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(int(config["batch_size"])):
            own = batch[rank::workers]
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(features[own]), targets[own]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = torch.nn.functional.mse_loss(layer(features), targets).item()
        report(layer, {"epoch": epoch, "loss": min(loss, 1e6), "workers": workers}, is_first=rank == 0)


def load(layer: torch.nn.Module) -> int:
    """Load the newest checkpoint, if there is one; returns the first epoch to train."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 1
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder, "state.pt"), weights_only=True)
    layer.load_state_dict(state["layer"])
    return int(state["epoch"]) + 1


def report(layer: torch.nn.Module, metrics: Mapping[str, float], *, is_first: bool) -> None:
    """Saves a checkpoint in each epoch: a trial is resized only at one."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if is_first:
            torch.save({"layer": layer.state_dict(), "epoch": metrics["epoch"]}, Path(folder, "state.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(dict(metrics), checkpoint=checkpoint)
