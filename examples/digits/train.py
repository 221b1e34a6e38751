"""Recognise handwritten digits with a small convolutional network: a plain Ray Train script.

`python train.py` trains once, with the configuration at the bottom, on a Ray that it starts itself. A tuner may call
`train_fn` with configurations of its own; the script does not know whether one does.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Config = dict[str, float | int | str]
CHECKPOINT_FILE = "state.pt"


def train_fn(config: Config) -> None:
    """Train for `epochs` epochs, or from the checkpoint on if there is one, reporting after each."""
    torch.set_num_threads(1)  # several workers share the machine
    torch.manual_seed(int(config.get("seed", 0)))
    train_set, validation_set = load_data()
    loader = prepare_data_loader(DataLoader(train_set, batch_size=int(config.get("batch_size", 64)), shuffle=True))
    model = prepare_model(build_model(int(config["channels"]), float(config.get("dropout", 0.0))))
    optimizer = build_optimizer(model, config)
    for epoch in range(restore(model, optimizer) + 1, int(config["epochs"]) + 1):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        metrics = {"epoch": epoch, "train_loss": train_one_epoch(model, optimizer, loader)}
        metrics |= evaluate(model, validation_set)
        report(metrics, model, optimizer)


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels in [0, 1]; a quarter is held out, the same quarter on every worker."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    kept, held_out = train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    return TensorDataset(images[kept], labels[kept]), TensorDataset(images[held_out], labels[held_out])


def build_model(channels: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * channels * 2 * 2, 10),
    )


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    lr = float(config["lr"])
    if config["optimizer"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=float(config["momentum"]))
    return torch.optim.AdamW(model.parameters(), lr=lr)


def train_one_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]
) -> float:
    """Return the mean loss of this worker's share of the data."""
    model.train()
    losses = list(steps(model, optimizer, loader))
    return sum(losses) / len(losses)


def steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]
) -> Iterator[float]:
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def evaluate(model: nn.Module, validation_set: TensorDataset) -> dict[str, float]:
    model.eval()
    device = next(model.parameters()).device
    images, labels = (tensor.to(device) for tensor in validation_set.tensors)
    logits = unwrapped(model)(images)
    accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
    return {"val_loss": nn.functional.cross_entropy(logits, labels).item(), "val_accuracy": accuracy}


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model without the wrapper that `prepare_model` puts around it when there are several workers."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def report(metrics: dict[str, float], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Report on every worker, as Ray Train asks; the first one brings the checkpoint."""
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        state = {
            "epoch": metrics["epoch"],
            "model": unwrapped(model).state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, Path(directory, CHECKPOINT_FILE))
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint to go on from, if there is one, and return the last epoch it has seen (0: none)."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        state = torch.load(Path(directory, CHECKPOINT_FILE), weights_only=True, map_location="cpu")
    unwrapped(model).load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


if __name__ == "__main__":
    ray.init("local", num_cpus=4)
    trainer = TorchTrainer(
        train_fn,
        train_loop_config={"lr": 0.003, "channels": 16, "optimizer": "adamw", "epochs": 5},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name="digits", storage_path=tempfile.mkdtemp(prefix="digits-")),
    )
    result = trainer.fit()
    print(f"val_accuracy {result.metrics['val_accuracy']:.4f}, checkpoint {result.checkpoint.path}")
