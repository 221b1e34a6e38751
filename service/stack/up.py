"""`paceline up`: runs Ray, MLflow, the service and an agent on one machine until Ctrl-C."""

import contextlib
import fcntl
import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from service import private_files
from service.stack.components import stages_of
from service.stack.orphan_cleanup import PREFIX, CleanupRecord
from service.stack.process_tags import Unkillable, kill_tagged, new_tag
from service.stack.state_file import read_state, state_file, write_state
from service.stack.supervisor import Supervisor
from service.stack.up_options import CannotStart, Options

START_SECONDS = 300.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_RAY_DIRECTORY_LENGTH = 43
"""Ray puts sockets below this directory, and the path of a socket may have 107 bytes."""


def run(options: Options, say: Callable[[str], None] = print, *, lifeline: int | None = None) -> None:
    """Run the stack until Ctrl-C, SIGTERM or SIGHUP. A second signal kills it immediately.

    `lifeline` is the descriptor of a pipe that is never written to: the stack also stops when its other end closes.

    Raises CannotStart before anything was started, and ComponentFailed for a component that cannot be kept running; in
    both cases nothing is left running. Raises Unkillable when something is.
    """
    tag, data_dir, say = new_tag(), options.data_dir.absolute(), tolerant(say)
    with (
        _stop_signals(tag, lifeline) as should_stop,
        _lock(data_dir) as lock,
        _cleanup_record(data_dir, tag, lock, say) as record,
    ):
        with _cannot_start(data_dir):
            state_file(data_dir).unlink(missing_ok=True)
            options = options.resolved()
            stages = stages_of(options, record)
        supervisor = Supervisor(stages, should_stop, say)
        try:
            say(f"Starting Ray, {'MLflow, ' if options.mlflow else ''}the service and an agent …")
            supervisor.start(START_SECONDS)
            if not should_stop():
                write_state(options)
                _print_addresses(options, say)
            supervisor.supervise()
        finally:
            say("Stopping …")
            supervisor.stop()
            state_file(data_dir).unlink(missing_ok=True)
    say("Stopped.")


def _print_addresses(options: Options, say: Callable[[str], None]) -> None:
    say("\nPaceline is ready.")
    say(f"  API     {options.url}  (OpenAPI document: {options.url}/openapi.json)")
    if options.mlflow_url:
        say(f"  MLflow  {options.mlflow_url}")
    say(f"  data    {options.data_dir}  (logs of all processes: stack/)")
    at = "" if options.port == Options.port else f" --url {options.url}"
    say(f"\nTry: paceline submit examples/quickstart/experiment.yaml --watch{at}")
    say("Ctrl-C stops everything.")


@contextlib.contextmanager
def _lock(data_dir: Path) -> Iterator[str]:
    """Hold the data directory's lock, and yield what identifies its file.

    Raises CannotStart when the directory is not writable, or another stack runs in it.
    """
    try:
        private_files.restrict_new_files()
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "up.lock").open("a")
    except OSError as error:
        other = "choose another directory: `--data-dir PATH` or PACELINE_DATA_DIR"
        remedy = private_files.remedy_or(error, other, user="yourself")
        raise CannotStart(f"the data directory {data_dir} cannot be written ({error.strerror}); {remedy}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            state = read_state(data_dir) or {}
            where = f" at {state['url']}, process {state['pid']}" if state else ""
            raise CannotStart(
                f"a stack runs in {data_dir} already{where}. Use it, stop it, or choose another `--data-dir` and ports"
            ) from error
        yield f"{os.fstat(lock.fileno()).st_ino} {data_dir.resolve()}"


@contextlib.contextmanager
def _cleanup_record(data_dir: Path, tag: str, lock: str, say: Callable[[str], None]) -> Iterator[CleanupRecord]:
    """Clean up after an earlier stack if it was killed; then record, and finally remove, what this one creates."""
    file = data_dir / "up.cleanup"
    with _cannot_start(data_dir):
        if (earlier := CleanupRecord.read(file)) and earlier.lock in {"", lock}:
            say("The last stack here was killed; removing its processes and temporary files …")
            earlier.clean_up()
        directory = _base_for_ray(data_dir) / f"{PREFIX}{tag[-8:]}"
        record = CleanupRecord(tag, str(directory), lock)
        record.write(file)
        directory.mkdir(mode=0o700)
    try:
        yield record
    finally:
        record.clean_up()
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _cannot_start(data_dir: Path) -> Iterator[None]:
    """Raise CannotStart in place of what keeps the stack from being prepared."""
    try:
        yield
    except Unkillable as error:
        raise CannotStart(f"processes that the last stack in {data_dir} has left cannot be stopped: {error}") from error
    except OSError as error:
        where = error.filename or data_dir
        raise CannotStart(f"the stack cannot be prepared: {where}: {error.strerror}") from error


def _base_for_ray(data_dir: Path) -> Path:
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), data_dir]  # noqa: S108
    for base in bases:
        if _is_short(base) and os.access(base, os.W_OK):
            return base
    tried = ", ".join(dict.fromkeys(map(str, bases)))
    raise CannotStart(
        f"Ray needs a directory that can be written and has a short path, and none of {tried} is one: make /tmp "
        "writable, or set TMPDIR to such a directory"
    )


def _is_short(base: Path) -> bool:
    return len(os.fsencode(base / f"{PREFIX}12345678")) <= MAX_RAY_DIRECTORY_LENGTH


def runs_under_nohup() -> bool:
    """Whether the end of the terminal is to be ignored."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@contextlib.contextmanager
def _stop_signals(tag: str, lifeline: int | None = None) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a stop signal has arrived, or the lifeline has closed.

    A counter instead of a threading.Event: a handler that sets an event may interrupt the wait that holds its lock.
    """
    count = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            kill_tagged(tag)

    numbers = [number for number in STOP_SIGNALS if number is not signal.SIGHUP or not runs_under_nohup()]
    earlier = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield lambda: count > 0 or (lifeline is not None and _is_closed(lifeline))
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _is_closed(pipe: int) -> bool:
    """Whether the other end of a pipe that is never written to is closed."""
    return bool(select.select([pipe], [], [], 0)[0])


def tolerant(say: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap `say` to flush each line, and to ignore a terminal that is closed or cannot show a character.

    Neither may keep the stack from stopping.
    """

    def say_and_flush(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            say(text)
            if sys.stdout is not None:
                sys.stdout.flush()

    return say_and_flush
