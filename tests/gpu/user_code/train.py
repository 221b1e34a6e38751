"""What training functions do with a GPU. Each trial writes a line: what it found when it began, and what it did."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray.train
import torch
from ray.train.torch import get_device, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset

GIGABYTE = 10**9


def train_fn(config: dict[str, Any]) -> None:
    began = time.time()
    found = state()
    done = ACTIONS[config["do"]](config) or {}
    about = {"do": config["do"], "number": config["number"], "pid": os.getpid(), "began": began, "ended": time.time()}
    with Path(config["record"]).open("a") as file:
        file.write(json.dumps(about | found | done) + "\n")
    ray.train.report({"loss": 1.0})


def state() -> dict[str, Any]:
    """The device, and what an earlier trial in this process may have changed."""
    device = get_device()
    free, total = torch.cuda.mem_get_info(device)
    return {
        "device": torch.cuda.get_device_name(device),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "used_gb": (total - free) / GIGABYTE,
        "allocated_gb": torch.cuda.memory_allocated(device) / GIGABYTE,
        "reserved_gb": torch.cuda.memory_reserved(device) / GIGABYTE,
        "peak_gb": torch.cuda.max_memory_allocated(device) / GIGABYTE,
        "fraction": torch.cuda.get_per_process_memory_fraction(device),
        "precision": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
        "random": torch.rand(1, device=device).item(),
        "group": torch.distributed.get_backend(),
        "sum": reduced(device),
    }


def reduced(device: torch.device) -> float:
    value = torch.ones(1, device=device)
    torch.distributed.all_reduce(value)
    return value.item()


def allocate(gigabytes: float) -> torch.Tensor:
    return torch.zeros(int(gigabytes * GIGABYTE), dtype=torch.uint8, device=get_device())


def observe(_config: dict[str, Any]) -> None:
    pass


def reach_a_peak(_config: dict[str, Any]) -> None:
    allocate(8)


def catch_out_of_memory(_config: dict[str, Any]) -> None:
    try:
        allocate(1000)
    except torch.OutOfMemoryError:
        return
    raise AssertionError("there is too much memory")


def run_out_of_memory(_config: dict[str, Any]) -> None:
    allocate(1000)


def keep_memory(_config: dict[str, Any]) -> None:
    torch.kept_by_the_trial = allocate(4)  # type: ignore[attr-defined]


def fail_on_the_gpu(_config: dict[str, Any]) -> None:
    """An index out of range ends all work of the process on its GPU."""
    torch.zeros(2, device=get_device())[torch.tensor([5], device=get_device())].cpu()


def break_the_gpu(config: dict[str, Any]) -> None:
    """The function goes on without its GPU."""
    try:
        fail_on_the_gpu(config)
    except RuntimeError as error:
        assert "device-side assert" in str(error)  # noqa: PT017


def change_settings(_config: dict[str, Any]) -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = True
    torch.cuda.set_per_process_memory_fraction(0.25)
    torch.cuda.manual_seed_all(5)


def train_a_model(_config: dict[str, Any]) -> dict[str, Any]:
    """As in Ray Train's documentation: DDP, batches loaded by processes into pinned memory, and bf16."""
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = prepare_data_loader(
        DataLoader(data, batch_size=256, num_workers=2, pin_memory=True, persistent_workers=True)
    )
    losses = []
    for epoch in range(3):
        for batch, wanted in loader:
            with torch.autocast("cuda", torch.bfloat16):
                loss = (model(batch) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, {"loss": losses[-1], "epoch": epoch})
    assert losses[-1] < losses[0]
    return {"losses": losses}


def save(state_of_training: dict[str, Any], metrics: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        torch.save(state_of_training, Path(folder) / "state.pt")
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def compile_a_library(config: dict[str, Any]) -> dict[str, Any]:
    """A layer of torch's own, in another size for each trial. Torch compiles a function eight times in a process."""
    compiled = torch._dynamo.utils.counters["stats"]
    before = compiled["unique_graphs"]
    width = 64 + 8 * config["number"]
    layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True).to(get_device()).eval()
    began = time.monotonic()
    output = torch.compile(layer)(torch.rand(8, 16, width, device=get_device()))
    assert torch.isfinite(output).all()
    return {"graphs": compiled["unique_graphs"] - before, "compile_seconds": time.monotonic() - began}


def resume_on_the_gpu(config: dict[str, Any]) -> dict[str, Any]:
    """Hang at step 2 with a checkpoint of step 1, for the test to kill the process; then go on from the checkpoint."""
    weight, first = torch.zeros(1000, device=get_device()), 1
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            loaded = torch.load(Path(folder) / "state.pt", map_location=get_device())
        weight, first = loaded["weight"], loaded["step"] + 1
    held = allocate(20)
    for step in range(first, 4):
        weight += 1
        save({"weight": weight, "step": step}, {"loss": -weight.sum().item(), "step": step})
        if checkpoint is None:
            Path(config["record"]).with_suffix(".pid").write_text(str(os.getpid()))
            time.sleep(3600)
    return {"weight": weight.mean().item(), "held": held.numel()}


def compute(_config: dict[str, Any]) -> None:
    end, matrix = time.time() + 6, torch.rand(2048, 2048, device=get_device())
    while time.time() < end:
        matrix = torch.softmax(matrix @ matrix, dim=0)
        torch.cuda.synchronize()


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    action.__name__: action
    for action in (
        observe,
        reach_a_peak,
        catch_out_of_memory,
        run_out_of_memory,
        keep_memory,
        fail_on_the_gpu,
        break_the_gpu,
        change_settings,
        train_a_model,
        compile_a_library,
        resume_on_the_gpu,
        compute,
    )
}
