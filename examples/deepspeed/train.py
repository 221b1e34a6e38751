"""A script as one finds it: DeepSpeed, command-line options, a line of output and a checkpoint for each epoch."""

import argparse
import os
import shutil
from pathlib import Path

import deepspeed
import deepspeed.comm as dist
import torch
from torch.utils.data import TensorDataset


def main() -> None:
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    parser.add_argument("--local_rank", type=int)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    if not torch.cuda.is_available():
        # On CPUs, DeepSpeed would compile kernels for shared memory first, which takes a C++ compiler and minutes.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.manual_seed(0)
    inputs = torch.rand(512, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    deepspeed.init_distributed()
    engine, _, data, _ = deepspeed.initialize(options, model, optimizer, training_data=TensorDataset(inputs, targets))

    directory = Path(os.environ["PACELINE_CHECKPOINT_DIR"])
    for epoch in range(resumed_epoch(engine, directory) + 1, options.epochs + 1):
        total = torch.zeros((), device=engine.device)
        for batch, target in data:
            loss = torch.nn.functional.mse_loss(engine(batch.to(engine.device)), target.to(engine.device))
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        dist.all_reduce(total)
        save(engine, directory, epoch)
        if dist.get_rank() == 0:
            mean = total.item() / len(data) / dist.get_world_size()
            print(f"epoch={epoch} loss={mean} processes={dist.get_world_size()}", flush=True)


def resumed_epoch(engine: deepspeed.DeepSpeedEngine, directory: Path) -> int:
    saved = sorted(directory.glob("epoch-*"))
    if not saved:
        return 0
    engine.load_checkpoint(directory, tag=saved[-1].name)
    return int(saved[-1].name.removeprefix("epoch-"))


def save(engine: deepspeed.DeepSpeedEngine, directory: Path, epoch: int) -> None:
    """All ranks save. The directory gets its name when it is complete, since it may be read at any time."""
    earlier = list(directory.glob("epoch-*"))
    engine.save_checkpoint(directory, tag="saving", save_latest=False)
    dist.barrier()
    if dist.get_rank() == 0:
        (directory / "saving").rename(directory / f"epoch-{epoch:04}")
        for one in earlier:
            shutil.rmtree(one)
    dist.barrier()


if __name__ == "__main__":
    main()
