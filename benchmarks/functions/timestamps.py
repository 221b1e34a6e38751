"""Times of what a training function does: one file per rank and run, flushed after every line.

Times are of the machine's monotonic clock, which all processes share.
"""

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray.train


class Timestamps:
    """Records the first line, the reports and the end of a training function, in the folder `config["timestamps"]`."""

    def __init__(self, config: dict[str, Any]) -> None:
        began = time.monotonic()
        context = ray.train.get_context()
        run = context.get_experiment_name().replace("/", "-")
        name = f"{run}.{context.get_world_rank()}.jsonl"
        self._file = Path(config["timestamps"], name).open("a", buffering=1)  # noqa: SIM115 - closed by __exit__
        self._write("first", began, pid=os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._write("last", time.monotonic())
        self._file.close()

    def report(self, metrics: dict[str, float]) -> None:
        """Call `ray.train.report`, and record the times of the call and of its return."""
        self._write("report", time.monotonic(), metrics=metrics)
        ray.train.report(metrics)
        self._write("answer", time.monotonic())

    def _write(self, event: str, at: float, **facts: Any) -> None:
        self._file.write(json.dumps({"event": event, "at": at, **facts}) + "\n")
