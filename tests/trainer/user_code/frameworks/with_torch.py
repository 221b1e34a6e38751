"""A training function for torch, as in Ray Train's documentation."""

import os
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train.torch import prepare_model


def train_fn(config: dict[str, Any]) -> None:
    model = prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(2):
        loss = (model(torch.ones(4, 2)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ray.train.report({"loss": loss.item()})
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
