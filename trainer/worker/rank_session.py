"""What runs in every worker around the user's training function.

It travels to the workers by value and uses only what Ray itself depends on. Code that travels by value has no module of
its own, so nothing here is kept in globals.
"""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

from trainer.phase_times import CHECKPOINTING, DATA, PhaseTimes
from trainer.process_log.setup import LogSettings, set_up_logger
from trainer.ray_train.processes.forked_children import detach_children_from_ray
from trainer.ray_train.torch_backend import lacks_gpus
from trainer.ray_train.train_session import (
    Hooks,
    Validated,
    finish_uploads,
    forget_report_error,
    is_gone,
    mark_training_done,
    node_of_run,
    prepare_context,
    rank_on_node,
    ranks_of_node,
    set_hooks,
    working_directory,
    world,
)
from trainer.storable_values import storable_text
from trainer.unused_folders import ScratchFolder
from trainer.worker.commands.command import Command, run_command
from trainer.worker.commands.command_output import last_lines
from trainer.worker.datasets.shard_waits import DatasetShards, DataWait
from trainer.worker.failures import CommandFailed, Failure, describe, headline, not_read, not_saved
from trainer.worker.logs.log_follower import LogFollower
from trainer.worker.logs.masker import Masker
from trainer.worker.messages import WorkerEnded, WorkerStarted
from trainer.worker.node_disk import has_room, naming_failed_disk
from trainer.worker.process_end.exit_code import record_exit_code
from trainer.worker.process_end.forked_child import ending_forked_children
from trainer.worker.process_end.oom_counter import find_oom_counter, read_oom_kills
from trainer.worker.reports import Reporter, StopTraining
from trainer.worker.reset.baseline import Baseline
from trainer.worker.system_metrics.load_thread import sampling, visible_gpus
from trainer.worker.system_metrics.nvidia_smi import Gpu
from trainer.worker.user_code.user_code import call, find_function, lock_package, refusing_shutdown
from trainer.worker.user_code.working_directory import WorkingDirectory
from trainer.worker.wait_notices import noticing_waits

logger = logging.getLogger("paceline")

LAST_MESSAGE_SECONDS = 10.0
"""How long a worker waits for the slot to confirm its last message."""

CODE_MODULE = "_paceline_worker"
"""The module under which a worker process keeps this code from one attempt to the next."""


class AttemptFailed(RuntimeError):
    """Tells Ray that a rank failed. Its message can always be pickled; the slot has the details."""


@dataclass(frozen=True)
class Job:
    """One attempt, as its workers need it. `package` is an ObjectRef to the content of the user's package.

    The workers fetch the secrets from the slot if `has_secrets`: what Ray Train carries could be stored or shown.
    Either `entrypoint` or `command` is given; `command` has the fields of a `Command`. `event_files` is the URI of the
    directory in which TensorBoard's event files are kept, if they are. `log` has the fields of `LogSettings` if
    Paceline's own lines in the workers' output are to be JSON, with `log_fields`. The user's output stays as it is.
    `system_metrics_seconds`: how often one rank of each node samples the node's load; None: never. `has_validation`:
    the specification says how checkpoints are validated. `max_log_bytes`: as `LogFollower.max_bytes`.
    """

    run: str
    slot: Any
    entrypoint: str | None
    command: dict[str, Any] | None
    config: dict[str, Any]
    package: Any | None
    package_name: str | None
    package_folder: str | None
    resume: str | None
    event_files: str | None
    has_secrets: bool = False
    log: dict[str, str] | None = None
    log_fields: dict[str, Any] = field(default_factory=dict)
    system_metrics_seconds: float | None = None
    has_validation: bool = False
    max_log_bytes: int | None = None
    storage_is_uri: bool = False


CAUGHT = (
    "the training function caught the exception by which ray.train.report() ends a trial that is to stop; what it did "
    "afterwards does not count. `except:` and `except BaseException` must raise it again"
)


def train_function(job: Job, code: Any) -> Callable[[], None]:
    """The training function that Ray Train gets.

    `code` is an ObjectRef to `run_job`. Pickling all of this code for each attempt would cost more than everything else
    that the function does; a worker process reads it once.
    """
    values = vars(job)

    def train() -> None:
        if CODE_MODULE not in sys.modules:
            sys.modules[CODE_MODULE] = ModuleType(CODE_MODULE)
            sys.modules[CODE_MODULE].__dict__["run_job"] = ray.get(code)
        sys.modules[CODE_MODULE].__dict__["run_job"](**values)

    return train


def run_job(**values: Any) -> None:
    """Run one rank of the attempt with these values, those of a `Job`. Raises AttemptFailed if the rank failed."""
    RankSession(Job(**values)).run()


class RankSession:
    """One worker's part in an attempt."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rank, self.world_size = world()
        self.folder: Path | None = None
        self.is_importing = True
        self.oom_counter = find_oom_counter()
        self._oom_kills = read_oom_kills(self.oom_counter)
        self._folder_lock: int | None = None
        self._secrets: dict[str, str] = ray.get(job.slot.secrets.remote(job.run)) if job.has_secrets else {}
        self._masker = Masker(self._secrets.values())
        self._working_directory: WorkingDirectory | None = None
        self._scratch = ScratchFolder()
        self._gather_count = 0
        self._gpus = visible_gpus()
        self._shards = DatasetShards(self.world_size)
        # A command trains on while its reports are stored.
        self.times = PhaseTimes(self._shards.blocked_seconds, waits=job.command is None)

    def run(self) -> None:
        """Run the user's function and report its end to the slot. Raises AttemptFailed if it failed."""
        reporter, logs = self._set_up()
        baseline, ended = self._run_sampled()
        ended = self._left(baseline, self._outcome(reporter, ended))
        logs.finish()
        mark_training_done()
        self._report_end(ended)
        if ended.failure is not None:
            raise AttemptFailed(ended.failure.message)

    def _set_up(self) -> tuple[Reporter, LogFollower]:
        """Prepare the process, and tell the slot that it is ready."""
        job = self.job
        detach_children_from_ray()
        prepare_context(job.resume, not_read, self._scratch)
        if job.log is not None:
            set_up_logger(LogSettings(**job.log), "worker", **job.log_fields, rank=self.rank)
        reporter = self._make_reporter()
        self._set_hooks(reporter)
        logs = LogFollower(self._send_log, self._masker, job.max_log_bytes)
        logs.start()
        job.slot.worker_started.remote(job.run, self.rank, self._started(logs).to_fields())
        if self.rank == 0 and lacks_gpus():  # said here, because the group's set-up is not in the trial's log
            logger.warning("GPUs were requested, but torch finds none on the workers: training on the CPU with gloo")
        return reporter, logs

    def _make_reporter(self) -> Reporter:
        return Reporter(
            self.job.slot,
            self.job.run,
            self.rank,
            self.world_size,
            self.oom_counter,
            self._masker,
            self.times,
            storage_is_uri=self.job.storage_is_uri,
        )

    def _set_hooks(self, reporter: Reporter) -> None:
        set_hooks(
            Hooks(
                unused_name=reporter.unused_name,
                on_report=reporter.report,
                on_save_error=not_saved,
                on_late_report=reporter.refuse,
                on_background_error=self._fail_in_background,
                on_shard=self._shards.shard_of,
                on_validated=self._validated if self.job.has_validation else None,
                during=self.times.during,
            )
        )

    def _run_sampled(self) -> tuple[Baseline, WorkerEnded]:
        """Run the function while the node's load is sampled. The Baseline is what the process was like before."""
        seconds = self.job.system_metrics_seconds if rank_on_node() == 0 else None
        sampler = sampling(seconds, self._send_sample, has_gpus=bool(self._gpus))
        with sampler, noticing_waits(self.rank, self.world_size, self._data_wait):
            baseline = Baseline()
            os.environ.update(self._secrets)
            ended = self._train()
            with self.times.during(CHECKPOINTING):
                finish_uploads()  # before the reset: they use the working directory and the package
        return baseline, ended

    def _outcome(self, reporter: Reporter, ended: WorkerEnded) -> WorkerEnded:
        """How the function has ended, also where it has caught what its reports have raised."""
        if reporter.error is not None:
            ended = WorkerEnded(failure=self._failure_of(reporter.error))
        elif reporter.has_stopped and self.job.command is None and not ended.has_stopped:
            logger.warning(CAUGHT)
            ended = WorkerEnded(has_stopped=True)
        reporter.error = None
        forget_report_error()
        return ended

    def _left(self, baseline: Baseline, ended: WorkerEnded) -> WorkerEnded:
        """Reset the process and leave its folders; returns the end with the times, and whether it can be used again."""
        not_reusable = self._reset(baseline, ended)
        not_left = self._leave_folders()
        failure = ended.failure
        if failure is not None and failure.is_of_node_disk and has_room(of_object_store=failure.is_of_object_store):
            ended = replace(ended, failure=replace(failure, is_of_node_disk=False))
        return replace(ended, times=self.times.at_end(), not_reusable=not_left or not_reusable)

    def _data_wait(self) -> DataWait | None:
        since = self.times.since(DATA)
        return self._shards.batch_wait() if since is None else DataWait.for_shard(since)

    def _train(self) -> WorkerEnded:
        try:
            with ending_forked_children(), refusing_shutdown():
                function = self._load()
                self.is_importing = False
                self.job.slot.function_began.remote(self.job.run)
                self.times.begin()
                call(function, self.job.config)
        except StopTraining:
            return WorkerEnded(has_stopped=True)
        except BaseException as error:  # noqa: BLE001 - sys.exit() and worse are failures of the user's code
            return WorkerEnded(failure=self._failure_of(error))
        return WorkerEnded()

    def _failure_of(self, error: BaseException) -> Failure:
        """What the error means. Writes its traceback to the trial's log, which has the output of a command already."""
        failure = describe(
            error,
            rank=self.rank,
            world_size=self.world_size,
            is_importing=self.is_importing,
            folder=str(self.folder) if self.folder else None,
            resume=self.job.resume,
            has_oom_kill=read_oom_kills(self.oom_counter) != self._oom_kills,
            is_command=self.job.command is not None,
        )
        if failure.is_checkpoint_missing and not is_gone(self.job.resume or ""):
            failure = replace(failure, is_checkpoint_missing=False)
        if isinstance(error, CommandFailed):
            sys.stderr.write(f"{failure.message}\n")
            return self._with_output(self._masked(failure), error.output)
        sys.stderr.write(storable_text(failure.traceback or ""))
        return self._masked(failure)

    def _with_output(self, failure: Failure, output: str) -> Failure:
        """The failure with the last lines of a command's output as its traceback; secrets are masked before the cut."""
        lines = last_lines(self._masker.mask(storable_text(output)))
        return replace(failure, traceback=f"{lines}\n\n{failure.message}".lstrip())

    def _fail_in_background(self, error: BaseException) -> AttemptFailed:
        """Report why a checkpoint could not be saved, in whose thread this runs; the function may still train.

        Ray must not get the error itself: the slot cannot unpickle an exception of the user's own class.
        """
        failure = replace(self._failure_of(error), is_of_node_disk=False)  # a running command may fill the disk itself
        self._await_confirmation(self.job.slot.worker_failed.remote(self.job.run, self.rank, vars(failure)))
        return AttemptFailed(failure.message)

    def _reset(self, baseline: Baseline, ended: WorkerEnded) -> str | None:
        """Prepare the process for the next attempt. Returns why it cannot be used again, or None.

        After a failure it is not used again, and may have lost its GPU, so that torch would end it soon.
        """
        if ended.failure is not None:
            return baseline.streams.put_back()
        try:
            folders = self.folder, working_directory()
            return baseline.restore([Path(folder) for folder in folders if folder is not None])
        except Exception as error:  # noqa: BLE001 - the trial has ended, whatever it has left in its libraries
            return f"the process cannot be reset: {headline(error)}"

    def _masked(self, failure: Failure) -> Failure:
        mask = self._masker.mask
        return replace(failure, message=mask(failure.message), traceback=mask(failure.traceback or "") or None)

    def _load(self) -> Callable[..., Any]:
        job = self.job
        if job.package is not None and job.package_folder is not None and job.package_name is not None:
            self.folder = Path(tempfile.gettempdir()) / job.package_folder
            self._folder_lock = lock_package(self.folder, job.package_name, lambda: ray.get(job.package))
        if (directory := working_directory()) is not None:
            used = WorkingDirectory(Path(directory), self.folder, ranks_of_node(), job.event_files)
            self._working_directory = used
        if job.command is not None:
            with naming_failed_disk("the command's checkpoint directory cannot be made"):
                directory_of_checkpoints = self._scratch.new_directory()
            return partial(run_command, Command(**job.command), directory_of_checkpoints, self._all_gather)
        return find_function(job.entrypoint or "", self.folder)

    def _all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, each of which has to call this as often; none when the attempt is over."""
        number, self._gather_count = self._gather_count, self._gather_count + 1
        answer = self.job.slot.all_gather.remote(self.job.run, number, self.rank, self.world_size, value)
        values: list[Any] = ray.get(answer)
        return values

    def _leave_folders(self) -> str | None:
        """Returns why the process cannot be used again, or None. The outcome of the trial does not depend on it."""
        steps: list[Callable[[], object]] = [self._scratch.remove]
        if self._working_directory is not None:
            steps.append(self._working_directory.leave)
        if self._folder_lock is not None:
            steps.append(partial(os.close, self._folder_lock))
        reason = None
        for step in steps:
            try:
                step()
            except OSError as error:  # such as where the function has closed descriptors that are not its own
                reason = f"its folders cannot be left: {error}"
        return reason

    def _started(self, logs: LogFollower) -> WorkerStarted:
        runtime = ray.get_runtime_context()
        group = ray.util.get_current_placement_group()
        return WorkerStarted(
            actor=runtime.current_actor,
            node=runtime.get_node_id(),
            pid=os.getpid(),
            placement_group=group.id.hex() if group else None,
            log_positions=logs.positions,
            oom_counter=self.oom_counter,
            oom_kills=self._oom_kills,
            exit_file=record_exit_code(next(iter(logs.positions), None)),
            working_directory=working_directory(),
            gpus=self._gpus,
        )

    def _validated(self, waits: bool, seconds: float | None) -> Validated:
        found: Validated = ray.get(self.job.slot.validated.remote(self.job.run, waits, seconds))
        return found

    def _send_sample(self, load: dict[str, float], gpus: list[Gpu]) -> None:
        self.job.slot.system_metrics.remote(self.job.run, self.rank, node_of_run(), load, gpus)

    def _send_log(self, offset: int, text: str, positions: dict[str, int]) -> Callable[[], None]:
        accepted = self.job.slot.log.remote(self.job.run, self.rank, offset, text, positions)

        def wait_for_room() -> None:
            with contextlib.suppress(ray.exceptions.RayError):  # the slot has died, and this process will
                ray.get(accepted)

        return wait_for_room

    def _report_end(self, ended: WorkerEnded) -> None:
        self._await_confirmation(self.job.slot.worker_ended.remote(self.job.run, self.rank, ended.to_fields()))

    def _await_confirmation(self, confirmed: Any) -> None:
        with contextlib.suppress(ray.exceptions.GetTimeoutError):
            ray.get(confirmed, timeout=LAST_MESSAGE_SECONDS)
