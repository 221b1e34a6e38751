"""A linear model on two workers, each of which streams its share of the training set."""

import tempfile
from pathlib import Path

import ray.train
import ray.train.torch
import torch
from torch import nn


def train_fn(config: dict[str, float]) -> None:
    model = ray.train.torch.prepare_model(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    train, val = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("val")
    for epoch in range(restored_epoch(model) + 1, int(config["epochs"]) + 1):
        for batch in train.iter_torch_batches(batch_size=int(config["batch_size"])):
            loss = nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            errors = [(model(b["x"]).squeeze(1) - b["y"]) ** 2 for b in val.iter_torch_batches(batch_size=None)]
        report({"epoch": epoch, "loss": torch.cat(errors).mean().item()}, model)


def report(metrics: dict[str, float], model: nn.Module) -> None:
    """Report on every worker, as Ray Train asks; the first one brings the checkpoint."""
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"epoch": metrics["epoch"], "model": unwrapped(model).state_dict()}, Path(folder, "state.pt"))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint(folder))


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model without the wrapper that `prepare_model` puts around it when there are several workers."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def restored_epoch(model: nn.Module) -> int:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder, "state.pt"), weights_only=True)
    unwrapped(model).load_state_dict(state["model"])
    return int(state["epoch"])
