"""Kind `command`: each rank runs a program, in any language, in place of a training function.

Rank 0's program reports. A report is one of Ray Train's: all ranks take part in it, and the checkpoint directory is
saved with it. The ranks agree on what comes next by Ray Train's broadcast.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Self

import ray
import ray.train
from ray.train import Checkpoint
from ray.train.collective import broadcast_from_rank_zero

from trainer.decisions import CONTINUE, STOP
from trainer.worker.commands.checkpoint_directory import CheckpointDirectory
from trainer.worker.commands.checkpoint_parts import AllGather, CheckpointParts
from trainer.worker.commands.command_metrics import CommandReport, JsonLinesReader, ReportServer, StdoutReader
from trainer.worker.commands.command_output import CommandOutput
from trainer.worker.commands.command_process import CommandProcess, end_of
from trainer.worker.commands.inbox import Exited, Failed, Inbox, Message, Shared, answer
from trainer.worker.commands.master_port import find_master_port
from trainer.worker.commands.snapshot import Later, Snapshot
from trainer.worker.failures import BadCommandFile, CommandFailed
from trainer.worker.process_end.oom_counter import find_oom_counter, read_oom_kills
from trainer.worker.reports import StopTraining
from trainer.worker.user_code.user_code import BadEntrypoint

KEEP_ALIVE_SECONDS = 30.0
"""Ray warns of a broadcast for which ranks wait longer than a minute."""
SIGKILL = -9

REPORT, SAVE, WAIT, END = "report", "save", "wait", "end"
"""What the ranks do next. SAVE is a report with the checkpoint directories of all ranks."""

logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class Command:
    """The command of an attempt. `stdout` has regular expressions, `file` the path of a file with JSON lines."""

    argv: list[str]
    params: dict[str, Any]
    stop_grace_seconds: float
    stdout: list[str] = field(default_factory=list)
    file: str | None = None


def run_command(command: Command, directory: Path, all_gather: AllGather, config: dict[str, Any]) -> None:
    """Run this rank's part, whose command saves in `directory`. It begins with the checkpoint to resume from.

    Raises StopTraining, CommandFailed, BadEntrypoint, MemoryError for a kernel's kill, and what ends the readers of the
    command's output: BadCommandFile and NodeDiskFailed for errors of the disk.
    """
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        checkpoint.to_directory(str(directory))
    with _Rank(command, config, directory, all_gather) as rank:
        rank.run()


class _Rank:
    """One rank: its process, the threads around it, and the reports that all ranks make together."""

    def __init__(self, command: Command, config: dict[str, Any], directory: Path, all_gather: AllGather) -> None:
        self._command, self._config, self._directory = command, config, directory
        context = ray.train.get_context()
        self._rank, self._world_size = context.get_world_rank(), context.get_world_size()
        self._checkpoints = CheckpointDirectory(directory)
        self._parts = CheckpointParts(directory, self._rank, all_gather)
        self._inbox = Inbox()
        self._output = CommandOutput()
        self._saves_with_others = self._world_size > 1
        self._listener = ThreadPoolExecutor(1, "command-broadcast")
        self._listening: Future[Any] | None = None
        self._oom_counter = find_oom_counter()
        self._oom_kills = read_oom_kills(self._oom_counter)
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._stop_listening)
            env = self._environment(self._rendezvous())
            if self._rank == 0:
                server = ReportServer(self._inbox.put)
                server.start()
                cleanup.callback(server.finish)
                env |= {"PACELINE_REPORT_URL": server.url, "PACELINE_LEASE": server.token}
            self._file_readers = self._readers_of_file()  # before the command can write to the file
            self._process = self._start(env)
            readers: list[StdoutReader | JsonLinesReader] = [*self._stdout_readers(), *self._file_readers]
            for reader in readers:
                reader.start()
            watcher = threading.Thread(target=self._watch, args=(readers,), name="command-exit")
            watcher.start()
            cleanup.callback(watcher.join)
            cleanup.callback(self._process.close)
            cleanup.callback(self._drop_reports)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def run(self) -> None:
        if self._rank == 0:
            self._run_first()
        else:
            self._run_other()

    def _run_first(self) -> None:
        """Make the reports of the command until it has exited. The other ranks hear what comes next."""
        while True:
            match self._inbox.get(KEEP_ALIVE_SECONDS if self._world_size > 1 else None):
                case None:
                    self._share(WAIT)
                case CommandReport() as report:
                    self._report_first(report)
                case Failed(error):
                    self._fail_because_of(error)
                case Exited(code):
                    self._check(code)
                    self._share(END)
                    return

    def _run_other(self) -> None:
        """Take part in the reports of rank 0 until its command has exited. This rank's own may do so before or after.

        Only rank 0 reads what its command reports.
        """
        has_exited = False
        while True:
            match self._next():
                case Shared(what) if what == END:
                    break
                case Shared(what) if what != WAIT:
                    self._report_too(saves=what == SAVE)
                case Failed(error):
                    self._fail_because_of(error)
                case Exited(code):
                    self._check(code)
                    has_exited = True
        if not has_exited:
            self._check(self._process.wait())

    def _next(self) -> Message | None:
        """What rank 0 says next, or what happens to this rank's own command until then."""
        if self._listening is None:
            self._listening = self._listener.submit(broadcast_from_rank_zero, None)
            self._listening.add_done_callback(self._heard)
        message = self._inbox.get()
        if isinstance(message, Shared):
            self._listening = None
        return message

    def _heard(self, shared: "Future[Any]") -> None:
        if shared.exception() is None:
            self._inbox.put(Shared(str(shared.result())))

    def _stop_listening(self) -> None:
        """A broadcast that rank 0 never makes, since this rank has failed, ends with the worker process."""
        self._listener.shutdown(wait=self._listening is None)

    def _share(self, what: str) -> None:
        if self._world_size > 1:
            broadcast_from_rank_zero(what)

    def _report_first(self, report: CommandReport) -> None:
        """Report as rank 0. A call of the command is answered, whatever happens."""
        try:
            if self._saves_with_others:
                self._report_with_others(report)
            else:
                self._report_alone(report)
        except BaseException:
            answer(report, STOP)
            raise

    def _report_alone(self, report: CommandReport) -> None:
        with contextlib.ExitStack() as cleanup:
            self._report(report, self._checkpoint_of(report, cleanup))

    def _report_with_others(self, report: CommandReport) -> None:
        """A report behind which others wait has no checkpoint. A command waits for the answer to its call."""
        is_late = report.decision is None and (report.line is None or self._inbox.has_report())
        with contextlib.nullcontext(Later()) if is_late else self._parts.snapshot(report.line) as snapshot:
            self._share(REPORT if isinstance(snapshot, Later) else SAVE)
            self._report_part(report, snapshot)

    def _report_too(self, *, saves: bool) -> None:
        """Take part in rank 0's report."""
        with self._parts.snapshot() if saves else contextlib.nullcontext(Later()) as snapshot:
            self._report_part(CommandReport({}), snapshot)

    def _report_part(self, report: CommandReport, snapshot: Snapshot | Later) -> None:
        part = contextlib.nullcontext() if isinstance(snapshot, Later) else self._parts.part(snapshot)
        with part as checkpoint:
            self._report(report, checkpoint)

    def _checkpoint_of(self, report: CommandReport, cleanup: contextlib.ExitStack) -> Checkpoint | None:
        """What a lone rank saves."""
        if report.decision is not None:
            return cleanup.enter_context(self._checkpoints.changed())
        if report.snapshot is None:
            return None
        cleanup.callback(self._checkpoints.release, report.snapshot)
        return Checkpoint.from_directory(str(report.snapshot.path)) if report.snapshot.is_intact() else None

    def _report(self, report: CommandReport, checkpoint: Checkpoint | None) -> None:
        try:
            ray.train.report(report.metrics, checkpoint=checkpoint)
        except StopTraining:
            answer(report, STOP)
            self._drop_reports()  # else a command that reports on waits, and cannot leave
            self._process.stop(self._command.stop_grace_seconds, knows=report.decision is not None)
            raise
        answer(report, CONTINUE)

    def _drop_reports(self) -> None:
        self._inbox.close()
        for reader in self._file_readers:
            reader.abandon()

    def _put(self, report: CommandReport) -> None:
        """Gets what the command has written. A lone rank saves its state now, before the command saves the next one."""
        if report.line is not None and not self._saves_with_others and not self._inbox.is_closed:
            taken = self._checkpoints.take(report.line)
            report = replace(report, snapshot=taken if isinstance(taken, Snapshot) else None)
        self._inbox.put(report)

    def _fail_because_of(self, error: Exception) -> NoReturn:
        """A command that has failed may have left an unreadable file for that reason: its own end comes first."""
        if isinstance(error, BadCommandFile) and (code := self._process.exit_code()):
            logger.warning("%s", error)
            self._check(code)
        raise error

    def _check(self, code: int) -> None:
        if code == 0:
            return
        if code == SIGKILL and read_oom_kills(self._oom_counter) != self._oom_kills:
            raise MemoryError("the kernel killed the command for lack of memory")
        failure = CommandFailed(f"the command ended with {end_of(code)}: {' '.join(self._command.argv)[:200]}")
        failure.output = self._output.end()
        raise failure

    def _watch(self, readers: list[StdoutReader | JsonLinesReader]) -> None:
        code = self._process.wait()
        for reader in readers:
            reader.finish()
        self._inbox.put(Exited(code))

    def _fail(self, error: Exception) -> None:
        self._inbox.put(Failed(error))

    def _readers_of_file(self) -> list[JsonLinesReader]:
        if self._rank != 0 or self._command.file is None:
            return []
        return [JsonLinesReader(Path(self._command.file), self._put, logger.warning, self._fail)]

    def _stdout_readers(self) -> list[StdoutReader]:
        """None where the output is not captured: on the other ranks, too."""
        if self._process.stdout is None:
            return []
        patterns = [re.compile(one) for one in self._command.stdout]
        return [StdoutReader(self._process.stdout, patterns, self._put, logger.warning, self._fail)]

    def _start(self, env: dict[str, str]) -> CommandProcess:
        program = self._command.argv[0]
        if (found := shutil.which(program, path=env["PATH"])) is None:
            raise BadEntrypoint(_why_not_run(program))
        captures = self._rank == 0 and bool(self._command.stdout)
        return CommandProcess([found, *self._command.argv[1:]], env, captures=captures)

    def _rendezvous(self) -> dict[str, str]:
        """Return where the ranks meet: an address of rank 0, and a port that is free there."""
        own = None
        if self._rank == 0:
            own = {"MASTER_ADDR": ray.util.get_node_ip_address(), "MASTER_PORT": str(find_master_port())}
        return dict((broadcast_from_rank_zero(own) if self._world_size > 1 else own) or {})

    def _environment(self, rendezvous: dict[str, str]) -> dict[str, str]:
        context = ray.train.get_context()
        ranks = {
            "RANK": self._rank,
            "WORLD_SIZE": self._world_size,
            "LOCAL_RANK": context.get_local_rank(),
            "LOCAL_WORLD_SIZE": context.get_local_world_size(),
            "NODE_RANK": context.get_node_rank(),
        }
        return {
            **os.environ,
            **rendezvous,
            **{name: str(value) for name, value in ranks.items()},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "PACELINE_PARAMS": json.dumps(self._command.params),
            "PACELINE_CONFIG": json.dumps(self._config),
            "PACELINE_CHECKPOINT_DIR": str(self._directory),
            "PYTHONUNBUFFERED": "1",  # a line that waits in a buffer is a report that comes late
        }


def _why_not_run(program: str) -> str:
    if Path(program).is_file():
        interpreter = "python" if program.endswith(".py") else "sh"
        reason = (
            "is a file that is not executable, because files are sent without their mode: name what runs it, as in "
            f"[{interpreter}, {program}]"
        )
    else:
        reason = "is neither on the PATH of this node nor a file of the package"
    return f"the command's program {program!r} {reason}"
