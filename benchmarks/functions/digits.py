"""Train a small network on scikit-learn's handwritten digits, data-parallel, and report after each epoch."""

from typing import Any

import torch
from ray.train.torch import prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from timestamps import Timestamps
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def train_fn(config: dict[str, Any]) -> None:
    with Timestamps(config) as timestamps:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        images, labels, held_out_images, held_out_labels = data()
        dataset = TensorDataset(images, labels)
        loader = prepare_data_loader(DataLoader(dataset, batch_size=config["batch_size"], shuffle=True))
        model = prepare_model(network(config["hidden"], config["dropout"]))
        optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
        for epoch in range(1, config["epochs"] + 1):
            train_one_epoch(model, optimizer, loader)
            timestamps.report({"epoch": epoch, "accuracy": accuracy(model, held_out_images, held_out_labels)})


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """1,797 images of 64 pixels in [0, 1]; a quarter is held out, the same quarter on every worker."""
    digits = load_digits()
    split = train_test_split(digits.data / 16, digits.target, test_size=0.25, random_state=0, stratify=digits.target)
    images, held_out_images, labels, held_out_labels = split
    return (
        torch.tensor(images, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
        torch.tensor(held_out_images, dtype=torch.float32),
        torch.tensor(held_out_labels, dtype=torch.int64),
    )


def network(hidden: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10))


def train_one_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]) -> None:
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    device = next(model.parameters()).device
    right: Tensor = model(images.to(device)).argmax(dim=1) == labels.to(device)
    return float(right.float().mean())
