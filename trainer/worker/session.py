"""What runs in every worker around the user's training function.

It travels to the workers by value, and uses only what Ray itself depends on. Code that travels by value has no module
of its own, so nothing here is kept in globals.
"""

import builtins
import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
from ray.train import Checkpoint
from ray.train.v2._internal.execution import context as ray_context
from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils, set_train_fn_utils
from ray.train.v2._internal.logging import patch_print
from ray.train.v2.api.report_config import CheckpointUploadMode

from trainer.text import storable
from trainer.worker.failures import describe, not_saved
from trainer.worker.logs import LogTail
from trainer.worker.metrics import plain
from trainer.worker.oom_counter import oom_counter, oom_kills
from trainer.worker.reset import Baseline
from trainer.worker.user_code import call, find_function, hold, unpack

FLUSH_SECONDS = 10.0

# The name under which a worker process keeps this code from one attempt to the next.
CODE = "_paceline_worker_side"

# What tells that a context's training thread is about to end.
OVER = "paceline_over"

logger = logging.getLogger("paceline")


class StopTraining(BaseException):
    """Carries the training function out of `ray.train.report()` when it was told to stop.

    Not an Exception, so that the user's own `except Exception` lets it pass.
    """


class AttemptFailed(RuntimeError):
    """Tells Ray that a rank failed, in words that always pickle; the slot knows the rest."""


@dataclass(frozen=True)
class Job:
    """One attempt, as its workers need it. `package` refers to the bytes in Ray's object store."""

    run: str
    slot: Any
    entrypoint: str
    config: dict[str, Any]
    package: Any | None
    package_name: str | None
    package_folder: str | None
    resume: str | None


def train_function(job: Job, code: Any) -> Callable[[], None]:
    """The training function that Ray Train gets.

    `code` refers to `run_job` in Ray's object store: to write all of it, and what it uses, for each attempt anew would
    cost more than all else of the function. A worker process reads it once.
    """
    values = vars(job)

    def train() -> None:
        if CODE not in sys.modules:
            sys.modules[CODE] = ModuleType(CODE)
            sys.modules[CODE].__dict__["run_job"] = ray.get(code)
        sys.modules[CODE].__dict__["run_job"](**values)

    return train


def run_job(**values: Any) -> None:
    """Run the attempt of these values, a `Job`'s, as one of its ranks. Raises AttemptFailed if it failed."""
    Rank(Job(**values)).run()


class Rank:
    """One worker's part in an attempt."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.context = ray_context.get_train_context()
        self.rank = self.context.get_world_rank()
        self.world_size = self.context.get_world_size()
        self.folder: Path | None = None
        self.importing = True
        self.oom_counter = oom_counter()
        self._held: int | None = None

    def run(self) -> None:
        """Run the user's function and tell the slot how it ended. Raises AttemptFailed if it failed."""
        self._prepare_context()
        tail = LogTail(self._ship)
        tail.start()
        self.job.slot.joined.remote(self.job.run, self.rank, self._member(tail))
        baseline = Baseline()
        end = self._train()
        reset_failure = baseline.restore(self.folder)
        if self._held is not None:
            os.close(self._held)
        tail.finish()
        setattr(self.context, OVER, True)
        with contextlib.suppress(ray.exceptions.GetTimeoutError):
            ray.get(
                self.job.slot.ended.remote(self.job.run, self.rank, {**end, "reset_failure": reset_failure}),
                timeout=FLUSH_SECONDS,
            )
        if end["failure"] is not None:
            raise AttemptFailed(end["failure"]["message"])

    def _train(self) -> dict[str, Any]:
        try:
            function = self._load()
            self.importing = False
            call(function, self.job.config)
        except StopTraining:
            return {"left": True, "failure": None}
        except BaseException as error:  # noqa: BLE001 - sys.exit() and worse are the user's failures, not ours
            folder = str(self.folder) if self.folder else None
            failure = describe(
                error, rank=self.rank, world_size=self.world_size, importing=self.importing, folder=folder
            )
            sys.stderr.write(failure["traceback"])
            return {"left": False, "failure": failure}
        return {"left": False, "failure": None}

    def _load(self) -> Callable[..., Any]:
        job = self.job
        if job.package is not None and job.package_folder is not None and job.package_name is not None:
            self.folder = Path(tempfile.gettempdir()) / job.package_folder
            name, folder = job.package_name, self.folder
            self._held = hold(folder, lambda: unpack(ray.get(job.package), name, folder))
        return find_function(job.entrypoint, self.folder)

    def _prepare_context(self) -> None:
        """Give this run what Ray keeps once per process, our `report()`, and the checkpoint to resume from."""
        self.context.report_order_condition = threading.Condition()
        self.context.checkpoint_upload_threadpool = ThreadPoolExecutor(
            max_workers=ray_context.MAX_CHECKPOINT_UPLOAD_THREADS, thread_name_prefix="asyncio_ray_upload"
        )
        if self.context.checkpoint is None and self.job.resume is not None:
            self.context.checkpoint = Checkpoint(self.job.resume)
        # It logs a line for every report of every rank.
        ray_context.logger.setLevel(logging.WARNING)
        # Ray's print writes each line to standard output and, by way of logging, to standard error.
        builtins.print = patch_print._original_print  # noqa: SLF001
        set_train_fn_utils(AnsweredReports(self.job, self.rank, self.world_size, self.oom_counter))

    def _member(self, tail: LogTail) -> dict[str, Any]:
        """Who this worker is, for a slot that may have to end it or to read what it could not ship."""
        runtime = ray.get_runtime_context()
        group = ray.util.get_current_placement_group()
        return {
            "actor": runtime.current_actor,
            "node": runtime.get_node_id(),
            "pid": os.getpid(),
            "placement_group": group.id.hex() if group else None,
            "positions": tail.positions,
            "oom_counter": self.oom_counter,
            "oom_kills": oom_kills(self.oom_counter) if self.oom_counter else None,
        }

    def _ship(self, offset: int, text: str, positions: dict[str, int]) -> None:
        self.job.slot.log.remote(self.job.run, self.rank, offset, text, positions)


class AnsweredReports(DistributedTrainFnUtils):  # type: ignore[misc]
    """Ray Train's own functions, with a `report()` that waits for the slot's answer and leaves when it says so."""

    def __init__(self, job: Job, rank: int, world_size: int, oom_counter: str | None) -> None:
        self._job = job
        self._rank = rank
        self._world_size = world_size
        self._sequence = 0
        self._warned: set[str] = set()
        self._oom_counter = oom_counter
        self._oom_kills = oom_kills(oom_counter) if oom_counter else None

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """As Ray's. Raises StopTraining, on all ranks at the same report, when the attempt is to stop; NotSaved."""
        try:
            super().report(metrics, checkpoint, checkpoint_dir_name, checkpoint_upload_mode, *args, **kwargs)
        except FileNotFoundError:
            raise  # the checkpoint's own directory
        except OSError as error:
            folder = ray_context.get_train_context().storage_context.experiment_fs_path
            raise not_saved(folder, error) from error
        saved = checkpoint is not None and checkpoint_upload_mode != CheckpointUploadMode.ASYNC
        path = ray_context.get_train_context().checkpoint.path if saved else None
        sequence, self._sequence = self._sequence, self._sequence + 1
        values = self._plain(metrics) if self._rank == 0 else None
        answer = self._job.slot.answer.remote(self._job.run, sequence, self._rank, self._world_size, values, path)
        self._count_kills()
        if ray.get(answer) != "continue":
            raise StopTraining

    def _count_kills(self) -> None:
        """Kills for memory that we have lived through say nothing about a later death of ours."""
        kills = oom_kills(self._oom_counter) if self._oom_counter else None
        if kills != self._oom_kills:
            self._oom_kills = kills
            self._job.slot.counted.remote(self._job.run, self._rank, kills)

    def _plain(self, metrics: dict[str, Any]) -> dict[str, Any]:
        values, dropped = plain(metrics)
        for name in set(dropped) - self._warned:
            self._warned.add(name)
            kinds = [type(value).__name__ for key, value in metrics.items() if storable(str(key)) == name]
            logger.warning("metric %r is %s, which is no number or text: left out", name, kinds[0])
        return values
