"""A user's training script that records what each rank does in a journal.

It imports Ray Train and nothing of Paceline.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
from checkpoints import restored, save  # type: ignore[import-not-found]
from curves import loss  # type: ignore[import-not-found]
from journal import Journal  # type: ignore[import-not-found]
from ray.train import Checkpoint

Config = dict[str, Any]


def train_fn(config: Config) -> None:
    """Report `steps` times, `pause` seconds apart, with a checkpoint every `save_every` steps."""
    context = ray.train.get_context()
    journal = Journal(config["journal"], context.get_experiment_name(), context.get_world_rank(), os.getpid())
    try:
        train(config, journal)
    except BaseException as error:
        journal.write("left", -1, why=type(error).__name__)
        raise
    finally:
        journal.close()


def train(config: Config, journal: Journal) -> None:
    start = restore(journal)
    for step in range(start + 1, config["steps"] + 1):
        time.sleep(config["pause"])
        journal.print_line()
        if step == config.get("breaks_at") and config["x"] == config["breaks_when_x"]:
            raise ValueError(f"no training with x = {config['x']}")
        report(config, journal, step)
    journal.write("end", config["steps"])


def report(config: Config, journal: Journal, step: int) -> None:
    """Report once. `made` distinguishes it from another report of the same step."""
    metrics = {"step": step, "loss": loss(config, step), "made": time.time()}
    if step % config["save_every"]:
        journal.write("report", step, made=metrics["made"])
        ray.train.report(metrics)
    else:
        with tempfile.TemporaryDirectory() as directory:
            journal.write("saving", step)
            save(Path(directory), journal.rank, ray.train.get_context().get_world_size(), step)
            journal.write("report", step, made=metrics["made"], saved=True)
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))
    journal.write("reported", step)


def restore(journal: Journal) -> int:
    """Return the step to resume from; 0: from scratch. Raises what a broken checkpoint raises."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        journal.write("start", 0)
        return 0
    with checkpoint.as_directory() as directory:
        step, sound = restored(Path(directory), journal.rank)
    journal.write("resumed", step, uri=checkpoint.path, sound=sound)
    return int(step)
