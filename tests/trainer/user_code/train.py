"""The user code of the tests: training functions that record what they did, each with a behaviour under test.

Shipped as the package of the tests' trials, which is one file: this is why it is long. It uses Ray Train and nothing
of Paceline.
"""

import contextlib
import errno
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
import ray.train
import torch
from ray.train import Checkpoint, CheckpointUploadMode

LEAKED: list[int] = []


def write_down(config: dict[str, Any], *words: Any) -> None:
    rank = ray.train.get_context().get_world_rank()
    with Path(config["record"]).open("a") as file:
        file.write(" ".join(str(word) for word in (rank, *words)) + "\n")


def train_fn(config: dict[str, Any]) -> None:
    behaviour = globals()[config.get("do", "report_steps")]
    behaviour(config)


def report_steps(config: dict[str, Any]) -> None:
    for step in range(1, config.get("steps", 3) + 1):
        write_down(config, "step", step)
        time.sleep(config.get("pause", 0))
        ray.train.report({"epoch": step, "loss": 1 / step})
    write_down(config, "end")


def say_who(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid(), "modules", ",".join(m for m in ("trainer", "service") if m in sys.modules))
    write_down(config, "forked", "--fork-server" in Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0"))
    write_down(config, "config", sorted(config))
    write_down(config, "env", os.environ.get("FROM_SPEC"), os.environ.get("CUDA_VISIBLE_DEVICES"))
    write_down(config, "gpu", *ray.get_runtime_context().get_accelerator_ids()["GPU"])
    write_down(config, "samplers", *(t.name for t in threading.enumerate() if "system-metrics" in t.name))
    ray.train.report({"epoch": 1})


def say_where(config: dict[str, Any]) -> None:
    write_down(config, "node", ray.get_runtime_context().get_node_id())
    ray.train.report({"epoch": 1})


def be_sampled(config: dict[str, Any]) -> None:
    """Until `nvidia-smi` has been called twice since the slot knows all ranks: a sample is on its way then."""
    ray.train.report({"epoch": 1})
    calls = Path(config["calls"])
    calls.touch()
    before = calls.read_text().count("\n")
    while calls.read_text().count("\n") < before + 2:
        time.sleep(0.01)
    ray.train.report({"epoch": 2})


def say_process_group(config: dict[str, Any]) -> None:
    group = torch.distributed.group.WORLD
    assert group is not None
    options = group._get_backend(torch.device("cpu")).options
    write_down(config, "group", torch.distributed.get_backend(), options._timeout.total_seconds())
    write_down(config, "accelerator", ray.get_runtime_context().get_assigned_resources().get("accelerator_type:A100"))
    ray.train.report({"epoch": 1})


def use_secrets(config: dict[str, Any]) -> None:
    value = os.environ["W_KEY"]
    write_down(config, "secret", value)
    print("it is", value, flush=True)  # noqa: T201
    for part in (value[:5], value[5:], "\n"):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.3)
    subprocess.run(["sh", "-c", "echo a child has $W_KEY >&2"], check=True)
    ray.train.report({"epoch": 1, "note": f"with {value}"})
    match config.get("end"):
        case "fail":
            raise ValueError(f"the server refused {value}")
        case "die":
            print("last words:", value, flush=True)  # noqa: T201
            os.kill(os.getpid(), signal.SIGKILL)


def look_for_secrets(config: dict[str, Any]) -> None:
    write_down(config, "found", os.environ.get("W_KEY"))


def look_at_the_rendezvous(config: dict[str, Any]) -> None:
    port = f"{int(os.environ['MASTER_PORT']):04X}"
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    sockets = [line.split()[1:4] for line in "".join(tables).splitlines()]
    mine = [own.split(":")[0] for own, _, state in sockets if state == "0A" and own.endswith(f":{port}")]
    write_down(config, "listens", *mine)
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    write_down(config, "total", int(total))


def reduce_and_lose_a_rank(config: dict[str, Any]) -> None:
    """The ranks run a collective at every step, and one of them is killed."""
    for step in range(1, 1000):
        if step == 3 and ray.train.get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(torch.ones(1))
        ray.train.report({"epoch": step})


def say_who_often(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid())
    report_steps({**config, "steps": 50})


def talk(config: dict[str, Any]) -> None:
    rank = ray.train.get_context().get_world_rank()
    print(f"printed by {rank}")  # noqa: T201
    print(f"complained by {rank}", file=sys.stderr)  # noqa: T201
    logging.getLogger("mine").warning("logged by %d: é", rank)
    os.write(1, f"written by {rank}\n".encode())
    subprocess.run(["echo", f"echoed by {rank}"], check=True)
    sys.stdout.write("no newline at the end")


def talk_much_and_lose_a_rank(config: dict[str, Any]) -> None:
    """More than the slot queues for a service that is slow. One rank is killed as soon as both have written it."""
    rank = ray.train.get_context().get_world_rank()
    for number in range(config["lines"]):
        sys.stdout.write(f"{number:99}\n")
    sys.stdout.flush()
    Path(config["record"] + f".written-{rank}").touch()
    if rank == 1:
        while not Path(config["record"] + ".written-0").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    ray.train.report({"epoch": 1})


def save(config: dict[str, Any]) -> None:
    start = restored_step()
    write_down(config, "pid", os.getpid())
    write_down(config, "from", start)
    for step in range(start + 1, start + config["steps"] + 1):
        write_down(config, "step", step)
        time.sleep(config.get("pause", 0))
        save_shard(step, checkpoint_dir_name=config["names"][step % 2] if "names" in config else None)


def save_when_preempted(config: dict[str, Any]) -> None:
    """Reports at each step, and saves only before its node goes away, as Ray's documentation advises."""
    for step in itertools.count(1):
        info = ray.train.get_preemption_info()
        if info is not None:
            write_down(config, "preempted", info.preempted_ranks, info.deadline_ms > time.time() * 1000)
            save_shard(step)
        time.sleep(0.02)
        ray.train.report({"epoch": step})


def save_shard(step: int, **arguments: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rank = ray.train.get_context().get_world_rank()
        Path(folder, f"shard-{rank}").write_text(str(step))
        ray.train.report({"epoch": step}, checkpoint=Checkpoint.from_directory(folder), **arguments)


def save_and_list(config: dict[str, Any]) -> None:
    for step in range(1, 6):
        save_shard(step)
    listed = 5
    while listed > config["expected"]:
        time.sleep(0.05)
        found = ray.train.get_all_reported_checkpoints(ray.train.CheckpointConsistencyMode.COMMITTED)
        listed = len(found)
    write_down(config, "listed", listed, found[-1].metrics["epoch"])


def save_half(config: dict[str, Any]) -> None:
    """The first attempt saves once, and never completes its second save."""
    start = restored_step()
    write_down(config, "from", start)
    save_shard(start + 1)
    if start == 0:
        save_shard(start + 2, checkpoint_upload_fn=lambda *upload: upload_for_ever(config, *upload))


def upload_for_ever(config: dict[str, Any], checkpoint: Checkpoint, name: str) -> Checkpoint:
    saved: Checkpoint = ray.train.get_context().get_storage().persist_current_checkpoint(checkpoint, name)
    if ray.train.get_context().get_world_rank() == 1:
        Path(saved.path, "shard-1").write_text("")
        write_down(config, "uploading", os.getpid(), saved.path)
        time.sleep(600)
    return saved


def find_no_room(config: dict[str, Any]) -> None:
    def upload(*_upload: Any) -> Checkpoint:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save_shard(1, checkpoint_upload_fn=upload)


def lose_the_storage(config: dict[str, Any]) -> None:
    """Save while the trial's folder is away, as when a file system is not mounted any more."""
    folder = Path(ray.train.get_context().get_storage().experiment_fs_path)
    with contextlib.suppress(FileNotFoundError):  # another rank was first
        folder.rename(folder.with_name(f"{folder.name}.away"))
    save_shard(1)


def save_from_nowhere(config: dict[str, Any]) -> None:
    """Report a directory that does not exist."""
    ray.train.report({"epoch": 1}, checkpoint=Checkpoint(str(Path(tempfile.gettempdir()) / "nowhere")))


def be_killed_by_the_kernel(config: dict[str, Any]) -> None:
    """As far as the counter shows."""
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        Path(config["counter"]).write_text("low 0\nhigh 0\nmax 812\noom 1\noom_kill 1\n")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def save_in_the_background(config: dict[str, Any]) -> None:
    for step in range(1, config["steps"] + 1):
        folder = tempfile.mkdtemp()
        rank = ray.train.get_context().get_world_rank()
        Path(folder, f"shard-{rank}").write_text(str(step))
        checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"epoch": step}, checkpoint, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)


class QuotaUsedUp(Exception):
    """Only this module has it."""


def fail_to_save_in_the_background(config: dict[str, Any]) -> None:
    def upload(*_upload: Any) -> Checkpoint:
        if config["raises"] == "OSError":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise QuotaUsedUp("no more today")

    arguments = {"checkpoint_upload_mode": CheckpointUploadMode.ASYNC, "checkpoint_upload_fn": upload}
    ray.train.report({"epoch": 1})
    save_shard(2, **arguments, delete_local_checkpoint_after_upload=False)
    time.sleep(600)


def restored_step() -> int:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(Path(folder, "shard-0").read_text())


def fail_on_rank_1(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        raise ValueError("a bad\nlearning rate")
    time.sleep(600)


def report_on_one_rank(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == config["alone"]:
        ray.train.report({"epoch": 2})


def fail_with_a_file_name_that_is_no_text(config: dict[str, Any]) -> None:
    name = os.fsdecode(b"caf\xe9.csv")
    raise ValueError(f"cannot parse {name}")


class UnprintableError(Exception):
    def __str__(self) -> str:
        return str(self.code)  # type: ignore[attr-defined]


def fail_without_a_text(config: dict[str, Any]) -> None:
    raise UnprintableError


def leave_without_a_word(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        os.write(2, b"last words\n")
        os._exit(3)
    time.sleep(600)


def read_beside(config: dict[str, Any]) -> None:
    rank = ray.train.get_context().get_world_rank()
    write_down(config, Path.cwd(), Path("data/words.txt").read_text())
    assert not Path("data", f"{rank}.txt").exists()
    Path("data", f"{rank}.txt").write_text("mine")
    Path("runs").mkdir(exist_ok=True)
    Path("runs", f"events.out.tfevents.{rank}").write_text(f"of rank {rank}")
    ray.train.report({"epoch": 1})


def read_beside_and_be_killed(config: dict[str, Any]) -> None:
    read_beside(config)
    os.kill(os.getpid(), signal.SIGKILL)


def exit_politely(config: dict[str, Any]) -> None:
    sys.exit(0)


def run_out_of_memory(config: dict[str, Any]) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")


def ignore_everything(config: dict[str, Any]) -> None:
    write_down(config, "started")
    while True:
        time.sleep(0.05)


def leak(config: dict[str, Any]) -> None:
    LEAKED.append(1)
    os.environ["LEAKED"] = "yes"
    Path(__file__).with_name("leaked").touch()
    sys.path.append("/leaked")
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.multiprocessing.set_start_method("spawn")
    torch.manual_seed(5)
    random.seed(5)
    logging.getLogger("leaked").addHandler(logging.StreamHandler())
    logging.getLogger().handlers[0].addFilter(logging.Filter("leaked"))
    logging.disable(logging.DEBUG)
    logging.getLogger().setLevel(logging.CRITICAL)
    ray.train.report({"epoch": 1})


def look_for_leaks(config: dict[str, Any]) -> None:
    found = [
        *(["module"] if LEAKED else []),
        *(["environment"] if "LEAKED" in os.environ else []),
        *(["file"] if Path(__file__).with_name("leaked").exists() else []),
        *(["path"] if "/leaked" in sys.path else []),
        *(["folder"] if Path.cwd() == Path("/") else []),
        *(["dtype"] if torch.get_default_dtype() != torch.float32 else []),
        *(["precision"] if torch.get_float32_matmul_precision() != "highest" else []),
        *(["start method"] if torch.multiprocessing.get_start_method(allow_none=True) is not None else []),
        *(["torch seed"] if torch.initial_seed() == 5 else []),
        *(["seed"] if random.random() == random.Random(5).random() else []),  # noqa: S311
        *(["level"] if logging.getLogger().level == logging.CRITICAL else []),
        *(["handler"] if logging.getLogger("leaked").handlers else []),
        *(["filter"] if any(type(one) is logging.Filter for one in logging.getLogger().handlers[0].filters) else []),
        *(["disabled"] if logging.root.manager.disable else []),
    ]
    write_down(config, "pid", os.getpid(), "leaks", found)
    ray.train.report({"epoch": 1})


def fork_a_child_that_fails(config: dict[str, Any]) -> None:
    child = os.fork()
    if child == 0:
        raise ValueError("in the child")
    write_down(config, "code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ray.train.report({"epoch": 1})


def end_a_forked_child(config: dict[str, Any]) -> None:
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(600)
    os.kill(child, signal.SIGTERM)
    write_down(config, "code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ray.train.report({"epoch": 1})


def leave_a_thread(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid())
    threading.Thread(target=time.sleep, args=(600,), name="leftover", daemon=True).start()
    ray.train.report({"epoch": 1})


def close_its_output(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid())
    sys.stdout.write("the last line\n")
    sys.stdout.flush()
    sys.stdout.close()
    sys.stderr.close()
    ray.train.report({"epoch": 1})


def print_elsewhere(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid())
    sys.stdout = Path(f"{config['record']}.out").open("w")  # noqa: SIM115 - as in scripts that keep their output
    ray.train.report({"epoch": 1})


def print_a_line(config: dict[str, Any]) -> None:
    write_down(config, "pid", os.getpid())
    sys.stdout.write("in the own log\n")
    ray.train.report({"epoch": 1})


def report_odd_values(config: dict[str, Any]) -> None:
    ray.train.report({"a": np.float32(0.5), "b": float("nan"), "c": np.int64(3), "d": float("-inf"), "e": object})


def takes_nothing() -> None:
    ray.train.report({"epoch": 1})


def takes_two(one: int, two: int) -> None:
    pass


def read_where(config: dict[str, Any]) -> None:
    for batch in ray.train.get_dataset_shard("train").iter_batches():
        for made_on in batch["node"]:
            write_down(config, ray.get_runtime_context().get_node_id(), "read", made_on)
    ray.train.report({"epoch": 1})


def where() -> dict[str, Any]:
    return {"train": ray.data.range(4, override_num_blocks=4).map(name_node)}


def name_node(row: dict[str, Any]) -> dict[str, Any]:
    return {"node": ray.get_runtime_context().get_node_id()}
