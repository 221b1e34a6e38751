"""A script as one finds it: Hugging Face Accelerate, command-line options, and a line of output for each epoch."""

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    accelerator = Accelerator()
    torch.manual_seed(0)
    inputs = torch.rand(512, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    data = DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

    for epoch in range(1, options.epochs + 1):
        total = torch.zeros((), device=accelerator.device)
        for batch, target in data:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total / len(data), reduction="mean").item()
        if accelerator.is_main_process:
            print(f"epoch={epoch} loss={mean} processes={accelerator.num_processes}", flush=True)


if __name__ == "__main__":
    main()
