"""What a rank records about itself. A line is one `write` and one `fsync`, so that a SIGKILL loses none."""

import json
import os
import time
from pathlib import Path
from typing import Any

from numbered_lines import numbered_line  # type: ignore[import-not-found]


class Journal:
    """The journal of one rank in one attempt, a file of its own. Each line says how many lines the rank has printed.

    `pid` is the process that ends the attempt if it is killed.
    """

    def __init__(self, directory: str, run: str, rank: int, pid: int) -> None:
        self.rank = rank
        self.printed = 0
        self._run, self._pid = run, pid
        name = f"{run.replace('/', '+')}+rank-{rank}+{os.getpid()}.jsonl"
        self._file = os.open(Path(directory) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, did: str, step: int, **facts: Any) -> None:
        line = {"at": time.time(), "did": did, "step": step, "run": self._run, "rank": self.rank, "pid": self._pid}
        os.write(self._file, (json.dumps(line | {"printed": self.printed} | facts) + "\n").encode())
        os.fsync(self._file)

    def print_line(self) -> None:
        """Print the next of the lines that the rank's log must have."""
        self.printed += 1
        print(numbered_line(self.printed), flush=True)  # noqa: T201 - it belongs into the trial's log

    def close(self) -> None:
        os.close(self._file)
