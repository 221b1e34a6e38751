"""A user's training script that records what each rank does in a journal.

It imports Ray Train and nothing of Paceline. A line is one `write` and one `fsync`, so that a SIGKILL loses none.
"""

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
from curves import loss  # type: ignore[import-not-found]
from numbered_lines import numbered_line  # type: ignore[import-not-found]
from ray.train import Checkpoint

Config = dict[str, Any]
PAYLOAD_BYTES = 100_000


class Journal:
    """The journal of one rank in one attempt, a file of its own. Each line says how many lines the rank has printed."""

    def __init__(self, config: Config) -> None:
        context = ray.train.get_context()
        self.rank, self.world_size = context.get_world_rank(), context.get_world_size()
        self.run: str = context.get_experiment_name()
        self.printed = 0
        name = f"{self.run.replace('/', '+')}+rank-{self.rank}+{os.getpid()}.jsonl"
        self._file = os.open(Path(config["journal"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, did: str, step: int, **facts: Any) -> None:
        line = {"at": time.time(), "did": did, "step": step, "run": self.run, "rank": self.rank, "pid": os.getpid()}
        os.write(self._file, (json.dumps(line | {"printed": self.printed} | facts) + "\n").encode())
        os.fsync(self._file)

    def print_line(self) -> None:
        """Print the next of the lines that the rank's log must have."""
        self.printed += 1
        print(numbered_line(self.printed), flush=True)  # noqa: T201 - it belongs into the trial's log

    def close(self) -> None:
        os.close(self._file)


def train_fn(config: Config) -> None:
    """Report `steps` times, `pause` seconds apart, with a checkpoint every `save_every` steps."""
    journal = Journal(config)
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
            save(Path(directory), journal, step)
            journal.write("report", step, made=metrics["made"], saved=True)
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))
    journal.write("reported", step)


def save(directory: Path, journal: Journal, step: int) -> None:
    """Write this rank's part, random bytes and their digest; slowly, so that it can be killed while saving."""
    content = step.to_bytes(4, "big") + os.urandom(PAYLOAD_BYTES)
    (directory / f"part-{journal.rank}").write_bytes(content)
    time.sleep(0.05)
    digest = {"sha256": hashlib.sha256(content).hexdigest(), "step": step, "world_size": journal.world_size}
    (directory / f"sum-{journal.rank}.json").write_text(json.dumps(digest))


def restore(journal: Journal) -> int:
    """Return the step to resume from; 0: from scratch. Raises what a broken checkpoint raises."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        journal.write("start", 0)
        return 0
    with checkpoint.as_directory() as directory:
        first = json.loads((Path(directory) / "sum-0.json").read_text())
        part = journal.rank % first["world_size"]  # an elastic group may have grown since
        digest = json.loads((Path(directory) / f"sum-{part}.json").read_text())
        content = (Path(directory) / f"part-{part}").read_bytes()
    sound = hashlib.sha256(content).hexdigest() == digest["sha256"]
    journal.write("resumed", digest["step"], uri=checkpoint.path, sound=sound)
    return int(digest["step"])
