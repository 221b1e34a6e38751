"""A training function for Lightning, as in Ray Train's documentation."""

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.model = torch.nn.Linear(2, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = (self.model(batch[0]) - 1).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def train_fn(config: dict[str, Any]) -> None:
    pl.seed_everything(config["seed"])
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices="auto",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    data = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)
    prepare_trainer(trainer).fit(Line(config["lr"]), train_dataloaders=data)
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
