"""A user's program, run as a `command`, that records what it does in a journal. It imports nothing but its own modules.

Its journal names the process of the worker that runs it: a kill of the program itself would be the user's own error.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from checkpoints import restored, save  # type: ignore[import-not-found]
from curves import loss  # type: ignore[import-not-found]
from journal import Journal  # type: ignore[import-not-found]

Config = dict[str, Any]
WORKER = b"ray::"
"""How the title of a worker process begins."""


def main() -> None:
    """Print the metrics of `steps` steps, `pause` seconds apart, and save before that every `save_every` steps."""
    config, directory = json.loads(os.environ["PACELINE_CONFIG"]), Path(os.environ["PACELINE_CHECKPOINT_DIR"])
    run = "/".join(Path.cwd().parts[-2:])
    journal = Journal(config["journal"], run, rank=0, pid=worker())
    start = restore(directory, journal)
    for step in range(start + 1, config["steps"] + 1):
        time.sleep(config["pause"])
        report(config, directory, journal, step)
    journal.write("end", config["steps"])


def report(config: Config, directory: Path, journal: Journal, step: int) -> None:
    is_saved = step % config["save_every"] == 0
    if is_saved:
        journal.write("saving", step)
        save(directory, rank=0, world_size=1, step=step)
    made = time.time()
    journal.write("report", step, made=made, saved=is_saved)
    print(f"step={step} loss={loss(config, step)!r} made={made!r}", flush=True)  # noqa: T201 - its report
    journal.write("reported", step)


def restore(directory: Path, journal: Journal) -> int:
    """Return the step to resume from; 0: from scratch."""
    if not (directory / "sum-0.json").exists():
        journal.write("start", 0)
        return 0
    step, sound = restored(directory, rank=0)
    journal.write("resumed", step, sound=sound)
    return int(step)


def worker() -> int:
    """The process of the worker that runs this program; its own without one."""
    pid = os.getpid()
    while pid > 1 and not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(WORKER):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid if pid > 1 else os.getpid()


if __name__ == "__main__":
    main()
