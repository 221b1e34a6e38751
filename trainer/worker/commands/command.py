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
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Self

import ray
import ray.train
from ray.train import Checkpoint
from ray.train.collective import broadcast_from_rank_zero

from trainer.worker.commands.command_metrics import CommandReport, JsonLinesReader, ReportServer, StdoutReader
from trainer.worker.commands.command_output import CommandOutput
from trainer.worker.commands.command_process import CommandProcess, end_of
from trainer.worker.commands.master_port import find_master_port
from trainer.worker.failures import CommandFailed
from trainer.worker.oom_counter import find_oom_counter, read_oom_kills
from trainer.worker.reports import StopTraining
from trainer.worker.user_code import BadEntrypoint

MAX_WAITING_REPORTS = 100
"""A command that reports faster than the service answers has to wait, as a training function does."""
KEEP_ALIVE_SECONDS = 30.0
"""Ray warns of a broadcast for which ranks wait longer than a minute."""
LINK_ATTEMPTS = 20
"""How often the files are looked at until none is replaced meanwhile."""

LEAVE_SECONDS = 10.0
"""How long a command that was answered `stop` may take to end itself, before it gets SIGTERM."""
SIGKILL = -9

REPORT, WAIT, END = "report", "wait", "end"

logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class Command:
    """The command of an attempt. `stdout` has regular expressions, `file` the path of a file with JSON lines."""

    argv: list[str]
    params: dict[str, Any]
    stop_grace_seconds: float
    stdout: list[str] = field(default_factory=list)
    file: str | None = None


@dataclass(frozen=True)
class Exited:
    """The rank's own process has ended, and all that it reported was handed over."""

    code: int


@dataclass(frozen=True)
class Shared:
    """What rank 0 says that comes next: REPORT, WAIT or END."""

    next: str


Message = CommandReport | Exited | Shared


def run_command(command: Command, directory: Path, config: dict[str, Any]) -> None:
    """Run this rank's part, whose command saves in `directory`.

    Raises StopTraining, CommandFailed, BadEntrypoint, and MemoryError for a kernel's kill.
    """
    with _Rank(command, config, CheckpointDirectory(directory)) as rank:
        rank.run()


class CheckpointDirectory:
    """The directory in which the command saves. It begins with the checkpoint to resume from."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        if (checkpoint := ray.train.get_checkpoint()) is not None:
            checkpoint.to_directory(str(directory))
        self._saved = self._state()

    @contextlib.contextmanager
    def changed(self) -> Iterator[Checkpoint | None]:
        """Yield the checkpoint if the command has changed a file since the last call, else None.

        It has links to the files as they are now: the command continues meanwhile, and may replace or remove them.
        """
        state = self._state()
        if state == self._saved or not state:
            yield None
            return
        self._saved = state
        with tempfile.TemporaryDirectory(dir=self.path.parent) as links:
            for number in range(LINK_ATTEMPTS):
                linked = Path(links, str(number))
                gone = [path for path, *_ in state if not _link(path, linked / path.relative_to(self.path))]
                if state and not gone:
                    break
                state = self._state()  # a file was replaced while its name was read
            yield Checkpoint.from_directory(str(linked))

    def _state(self) -> set[tuple[Path, int, int]]:
        found = set()
        for folder, _, names in os.walk(self.path):  # without an error for a folder that has just been removed
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        found.add((path, status.st_size, status.st_mtime_ns))
        return found


def _link(path: Path, link: Path) -> bool:
    """Return False if there is no such file any more. Where the file system has no links, it is copied."""
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        link.hardlink_to(path.resolve())
    except FileNotFoundError:
        return False
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, link)
        return link.exists()
    return True


class _Inbox:
    """What the main thread has to do, from all other threads. After `close`, what comes is dropped."""

    def __init__(self) -> None:
        self._queue: Queue[Message] = Queue(MAX_WAITING_REPORTS)
        self._closed = threading.Event()

    def put(self, message: Message) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(Full):
                self._queue.put(message, timeout=0.1)
                if self._closed.is_set():  # perhaps after `close` has answered what was there
                    self.close()
                return
        _answer(message, "stop")

    def get(self, seconds: float | None = None) -> Message | None:
        """None if nothing came in this time."""
        with contextlib.suppress(Empty):
            return self._queue.get(timeout=seconds)
        return None

    def close(self) -> None:
        self._closed.set()
        while (message := self.get(0)) is not None:
            _answer(message, "stop")


def _answer(message: Message, decision: str) -> None:
    if isinstance(message, CommandReport) and message.decision is not None:
        message.decision.set_result(decision)


class _Rank:
    """One rank: its process, the threads around it, and the reports that all ranks make together."""

    def __init__(self, command: Command, config: dict[str, Any], checkpoints: CheckpointDirectory) -> None:
        self._command, self._config, self._checkpoints = command, config, checkpoints
        context = ray.train.get_context()
        self._rank, self._world_size = context.get_world_rank(), context.get_world_size()
        self._inbox = _Inbox()
        self._output = CommandOutput()
        self._ended = False
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
            file_readers = self._file_readers()  # before the command can write to the file
            self._process = self._start(env)
            readers: list[StdoutReader | JsonLinesReader] = [*self._stdout_readers(), *file_readers]
            for reader in readers:
                reader.start()
            watcher = threading.Thread(target=self._watch, args=(readers,), name="command-exit")
            watcher.start()
            cleanup.callback(watcher.join)
            cleanup.callback(self._process.close)
            cleanup.callback(self._inbox.close)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def run(self) -> None:
        while True:
            message = self._next()
            if isinstance(message, Exited):
                self._check(message.code)
                self._ended = True
            if self._rank == 0:
                self._share(_next_for_others(message))
            if isinstance(message, CommandReport) or message == Shared(REPORT):
                self._report(message if isinstance(message, CommandReport) else CommandReport({}))
            if (self._rank == 0 and self._ended) or message == Shared(END):
                break
        if not self._ended:
            self._check(self._process.wait())

    def _next(self) -> Message | None:
        if self._rank == 0:
            return self._inbox.get(KEEP_ALIVE_SECONDS if self._world_size > 1 else None)
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

    def _report(self, report: CommandReport) -> None:
        try:
            with self._checkpoints.changed() as checkpoint:
                ray.train.report(report.metrics, checkpoint=checkpoint)
        except StopTraining:
            _answer(report, "stop")
            grace = self._command.stop_grace_seconds
            self._process.stop(grace, LEAVE_SECONDS if report.decision is not None else 0)
            raise
        except BaseException:
            _answer(report, "stop")
            raise
        _answer(report, "continue")

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

    def _file_readers(self) -> list[JsonLinesReader]:
        if self._rank != 0 or self._command.file is None:
            return []
        return [JsonLinesReader(Path(self._command.file), self._inbox.put, logger.warning)]

    def _stdout_readers(self) -> list[StdoutReader]:
        """None where the output is not captured: on the other ranks, too."""
        if self._process.stdout is None:
            return []
        return [StdoutReader(self._process.stdout, [re.compile(one) for one in self._command.stdout], self._inbox.put)]

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
            "PACELINE_CHECKPOINT_DIR": str(self._checkpoints.path),
            "PYTHONUNBUFFERED": "1",  # a line that waits in a buffer is a report that comes late
        }


def _next_for_others(message: Message | None) -> str:
    if isinstance(message, CommandReport):
        return REPORT
    return END if isinstance(message, Exited) else WAIT


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
