"""The user code of the tests of datasets: it uses Ray Train and Ray Data, and nothing of Paceline."""

import ctypes
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.data
import ray.train
from shares import doubled  # type: ignore[import-not-found]


def write_down(config: dict[str, Any], *what: object) -> None:
    rank = ray.train.get_context().get_world_rank()
    with Path(config["record"]).open("a") as record:
        record.write(" ".join(map(str, (rank, *what))) + "\n")


def read(config: dict[str, Any]) -> None:
    """Read each dataset once in each epoch, and write down what came."""
    write_down(config, "pid", os.getpid())
    shards = {name: ray.train.get_dataset_shard(name) for name in config.get("names", ["train"])}
    first = restored_epoch()
    for epoch in range(first, config.get("epochs", 2)):
        for name, shard in shards.items():
            rows = sorted(value for batch in shard.iter_batches(batch_size=8) for value in batch["x"].tolist())
            write_down(config, "epoch", epoch, name, len(rows), *rows)
        report(epoch + 1)
        if epoch == config.get("die_at") and first == 0:
            for number, _ in enumerate(shards["train"].iter_batches(batch_size=1)):
                if number == 2 and ray.train.get_context().get_world_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)


def leave_early(config: dict[str, Any]) -> None:
    for _ in ray.train.get_dataset_shard("train").iter_batches(batch_size=1):
        write_down(config, "pid", os.getpid())
        ray.train.report({"epoch": 1})
        break


def read_when_told(config: dict[str, Any]) -> None:
    """Two epochs, and wait before one of them: before the first one also for the dataset itself."""
    if config["waits_before"] == 0:
        wait_until_told(config)
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(2):
        if config["waits_before"] == epoch > 0:
            wait_until_told(config)
        for _ in shard.iter_batches(batch_size=1):
            pass


def read_later_on_rank_1(config: dict[str, Any]) -> None:
    """Rank 1 begins its loop only when told."""
    shard = ray.train.get_dataset_shard("train")
    if ray.train.get_context().get_world_rank() == 1:
        wait_until_told(config)
    for _ in shard.iter_batches():
        pass
    ray.train.report({"epoch": 1})


def wait_until_told(config: dict[str, Any]) -> None:
    write_down(config, "waits")
    while not Path(config["go"]).exists():
        time.sleep(0.01)


def report(epoch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "epoch").write_text(str(epoch))
        ray.train.report({"epoch": epoch}, checkpoint=ray.train.Checkpoint(folder))


def restored_epoch() -> int:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(Path(folder, "epoch").read_text())


def make(config: dict[str, Any]) -> Any:
    with Path(config["record"]).open("a") as record:
        record.write(f"- made {sorted(config)} in {Path.cwd().name[:14]}\n")
    sys.stdout.write(f"the dataset function prints {os.environ.get('DATA_KEY')}\n")
    logging.getLogger("user").warning("the dataset function warns")
    numbers = ray.data.range(40, override_num_blocks=4).map_batches(doubled).random_shuffle(seed=1)
    return {"train": numbers, "ordered": numbers.sort("x")}


def make_when_told(config: dict[str, Any]) -> Any:
    while not Path(config["go"]).exists():
        time.sleep(0.01)
    return {"train": ray.data.range(4)}


def make_badly(config: dict[str, Any]) -> Any:
    with Path(config["record"]).open("a") as record:
        record.write("- made badly\n")
    raise ValueError(f"no shard of {config['record'][:0]}this size")


def make_a_list(config: dict[str, Any]) -> Any:
    return [1]


def make_and_exit(config: dict[str, Any]) -> Any:
    child = os.fork()
    if child == 0:
        os._exit(4)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 1)


def make_and_crash(config: dict[str, Any]) -> Any:
    ctypes.string_at(0)


def make_and_be_killed(config: dict[str, Any]) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def make_with_a_bad_task(config: dict[str, Any]) -> Any:
    def cast(batch: Any) -> Any:
        try:
            return {"x": batch["y"]}
        except KeyError as error:
            raise ValueError(f"no column {error}\nof this name") from error

    return {"train": ray.data.range(4).map_batches(cast)}
