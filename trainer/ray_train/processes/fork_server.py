"""The fork server: on each node, a process that has imported torch and Ray Train, and forks Ray's worker processes.

Importing them takes a new process 4 seconds of CPU time and 450 MB. A forked process has them after a few milliseconds,
and shares the memory. It is as fresh as any: the fork server runs nothing but imports.

This file runs on the nodes as a program of its own (see `runtime_environments`), in two roles. The *launcher* runs
where Ray would run Python to start a worker process: it hands over its arguments, environment and open files to the
node's fork server, starts that if there is none, and ends. Whatever goes wrong, it becomes the worker process itself,
as without a fork server. It uses only the standard library, because there is nothing else that starts as fast.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",  # takes a second; the first optimizer of a process imports it
    "ray.train.torch",
    "ray.train.v2._internal.execution.controller",
    "ray.train.v2._internal.execution.worker_group",
)
PRELOADED_LATER = ("sklearn.model_selection",)
"""After the first worker has been forked, which needs none of it. Many training scripts do; it takes two seconds.

What is not installed is left out of both.
"""

# fmt: off
IMPORT_SETTINGS = (
    "ARROW_", "CUDA", "GLIBC_", "GOMP_", "JE_", "KMP_", "LD_", "MALLOC_", "MKL_", "NUMEXPR_", "NVIDIA_", "OMP_",
    "OPENBLAS_", "PYTHON", "PYTORCH_", "RAY_", "TORCH",
)
# fmt: on
"""Prefixes of the variables that may be read at an import. A worker with other values than the fork server's own is not
forked."""

# fmt: off
RUN_SETTINGS = (
    "OMP_NUM_THREADS", "RAY_DATA_SHUFFLE_MAP_WORKER", "RAY_DATA_SHUFFLE_REDUCE_WORKER", "RAY_TRAIN_",
    "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC",
)
# fmt: on
"""Prefixes of exceptions among them, which imports do not read, except READ_AT_IMPORT: a worker with other values is
forked all the same."""

CREDENTIALS = ("_KEY", "_PASSWORD", "_SECRET", "_TOKEN")
"""Ends of names that imports do not read either, such as `NVIDIA_API_KEY`: one experiment's, and not for others
to see."""

READ_AT_IMPORT = frozenset(
    {"RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "RAY_TRAIN_V2_ENABLED", "TORCH_COMPILE_STICKY_PGO_KEY"}
)
"""Names that RUN_SETTINGS or CREDENTIALS would except, but that imports do read."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Keeps libraries from starting threads at their import: a process with several cannot be forked safely."""

THREADS = "PACELINE_THREADS"
"""The number of threads for which Ray is going to set OMP_NUM_THREADS in the worker, where that is not 1."""

START_SECONDS = 40.0
"""How long a launcher waits for a fork server that still imports, and then for the fork. Ray gives a worker process a
minute to start, and notices a launcher that ends without a worker only then. One that gives up has to import Ray."""

REQUEST_SECONDS = 5.0
"""How long a fork server waits for a launcher's request."""

BIND_CHECK_SECONDS = 0.01

IDLE_SECONDS = 10.0
"""How long a fork server without living children stays. Prestarted workers are such children."""

READY, FORKED = b"r", b"f"
LENGTH = struct.Struct("!I")
STANDARD_FILES = (0, 1, 2)
LISTENER = 3
"""The file descriptor on which a fork server listens."""


def main(bootstrap: str, more_modules: Sequence[str] = ()) -> None:
    """`bootstrap` is the program that calls this function; `more_modules` are preloaded with PRELOADED_LATER."""
    if sys.argv[1] == "--fork-server":
        sys.argv[0:2] = []
        sys.path[0] = str(Path(sys.argv[0]).parent)  # as in a worker process, and not the present folder
        serve(deque([*PRELOADED_LATER, *more_modules]))
    else:
        launch(sys.argv[1:], bootstrap)


def address_of(arguments: list[str]) -> str:
    """The fork server of this user and Ray job on this Ray node: an abstract socket, which ends with its process.

    Ray reads the job's id at its import. It ends a worker that names another job when that job has ended.
    """
    return f"\0paceline-fork-server.{os.getuid()}.{option(arguments, 'node-id')}.{os.environ['RAY_JOB_ID']}"


def option(arguments: list[str], name: str) -> str:
    """The value of an option of Ray's worker processes."""
    return next(one.partition("=")[2] for one in arguments if one.startswith(f"--{name}="))


def is_import_setting(name: str) -> bool:
    is_exception = name.startswith(RUN_SETTINGS) or name.endswith(CREDENTIALS)
    return name in READ_AT_IMPORT or (name.startswith(IMPORT_SETTINGS) and not is_exception)


def import_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if is_import_setting(name)}


def is_own_process(connection: socket.socket) -> bool:
    """Whether the other side belongs to this user: an abstract socket is open to all users of the machine."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


# The launcher.


def launch(arguments: list[str], bootstrap: str) -> None:
    """Have the worker process forked, or become it."""
    try:
        is_forked = request_fork(arguments, bootstrap)
    except Exception:  # noqa: BLE001 - the worker process has to start
        is_forked = False
    if not is_forked:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606


def request_fork(arguments: list[str], bootstrap: str) -> bool:
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "settings": import_settings(),
        "folder": str(Path.cwd()),
        "umask": read_umask(),
    }
    content = json.dumps(request).encode()
    with connect(arguments, bootstrap) as connection:
        connection.settimeout(START_SECONDS)
        if not is_own_process(connection) or connection.recv(1) != READY:
            return False
        socket.send_fds(connection, [LENGTH.pack(len(content))], STANDARD_FILES)
        connection.sendall(content)
        try:
            return connection.recv(1) == FORKED
        except TimeoutError:
            sys.exit(1)  # it may have been forked, and must not run twice


def connect(arguments: list[str], bootstrap: str) -> socket.socket:
    """Connect to the fork server, and start it if there is none."""
    connection, deadline = socket.socket(socket.AF_UNIX), time.monotonic() + START_SECONDS
    while True:
        try:
            connection.connect(address_of(arguments))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
        else:
            return connection
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(address_of(arguments))
            except OSError:  # another launcher was first, and is about to listen
                time.sleep(BIND_CHECK_SECONDS)
                continue
            listener.listen(1000)
            start_server(listener, arguments, bootstrap)


def start_server(listener: socket.socket, arguments: list[str], bootstrap: str) -> None:
    """Start it as a daemon. Its output goes to Ray's logs."""
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            logs = Path(option(arguments, "temp-dir"), option(arguments, "session-name"), "logs")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(logs / "paceline-fork-server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
            os.dup2(1, 2)
            os.dup2(listener.fileno(), LISTENER)
            os.set_inheritable(LISTENER, True)
            os.closerange(LISTENER + 1, os.sysconf("SC_OPEN_MAX"))
            program = [sys.executable, "-c", bootstrap, "--fork-server", *arguments]
            os.execve(sys.executable, program, server_environment())  # noqa: S606
    finally:
        os._exit(0)


def server_environment() -> dict[str, str]:
    """The raylet's environment with the launcher's import settings, which are compared with those of later workers.

    The launcher's other variables are of one experiment. The modules that the fork server imports may keep them, and
    `/proc/PID/environ` of each child shows them.
    """
    try:
        content = Path("/proc", os.environ["RAY_RAYLET_PID"], "environ").read_bytes()
    except OSError:  # the raylet is another user's
        return dict(os.environ)
    raylets = (os.fsdecode(one).partition("=") for one in content.split(b"\0") if b"=" in one)
    shared = {name: value for name, _, value in raylets if not is_import_setting(name)}
    return {**shared, **import_settings()}


def read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# The server.


def serve(later: deque[str]) -> None:
    """Fork on request until the raylet ends, or until there has been no child for a while.

    The modules `later` are imported one by one, each when no request waits.
    """
    settings = import_settings()
    raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    listener = socket.socket(fileno=LISTENER)
    can_fork = preload(PRELOADED)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children = 0
    while True:
        patience = 0 if later and can_fork else None if children else IDLE_SECONDS
        found = select.select([listener.fileno(), raylet, ended], [], [], patience)[0]
        if patience == 0 and not found:
            can_fork = preload([later.popleft()])
            continue
        if raylet in found or not (found or children):
            return
        if ended in found:
            os.read(ended, 4096)
            children -= reap()
        if listener.fileno() in found:
            children += answer(listener, settings if can_fork else None, own_files=(raylet, ended, wake))


def preload(modules: Sequence[str]) -> bool:
    """Import everything; returns whether this process can be forked. If not, the reason goes to Ray's logs."""
    fault = None
    with variables(ONE_THREAD), actor_class_ids_from_the_system():
        for name in modules:
            import_if_possible(name)
            if fault := fault_of_threads(name):
                break
    gc.collect()
    gc.freeze()  # so that the GC of a child does not write to, and thereby copy, the shared memory
    if fault := fault or fault_of_random_numbers():
        print("forking disabled:", fault, flush=True)  # noqa: T201 - goes to Ray's logs
    return not fault


def import_if_possible(name: str) -> None:
    """A module that is not installed is left out, and so is one that fails here: a worker may have what it needs."""
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    except Exception as error:  # noqa: BLE001 - any module's
        print(f"not preloaded: {name}: {error!r}", flush=True)  # noqa: T201 - goes to Ray's logs


@contextlib.contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables until the context ends."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def actor_class_ids_from_the_system() -> Iterator[None]:
    """Keep modules that define actor classes from starting Ray's random numbers: all children would get the same."""
    actor: Any = importlib.import_module("ray.actor")
    ids = actor.ActorClassID
    actor.ActorClassID = SimpleNamespace(from_random=lambda: ids(os.urandom(ids.size())))
    try:
        yield
    finally:
        actor.ActorClassID = ids


def fault_of_threads(module: str) -> str | None:
    """A thread may hold a lock that a child would wait for."""
    if len(threads := list(Path("/proc/self/task").iterdir())) > 1:
        names = sorted((thread / "comm").read_text().strip() for thread in threads)
        return f"after the import of {module} there are several threads: {', '.join(names)}"
    return None


def fault_of_random_numbers() -> str | None:
    """Children must not give their Ray tasks the same ids."""
    is_same = len({random_id_of_child() for _ in range(2)}) == 1
    return "forked children would generate the same Ray ids" if is_same else None


def random_id_of_child() -> bytes:
    ids = importlib.import_module("ray")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, ids.TaskID.for_fake_task(ids.JobID.from_int(1)).binary())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        return file.read()


def reap() -> int:
    count = 0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    return count


def answer(listener: socket.socket, settings: dict[str, str] | None, own_files: tuple[int, ...]) -> int:
    """Fork for one launcher, or refuse it; returns the number of new children. Without `settings` all are refused."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError, ValueError, struct.error):
        connection.settimeout(REQUEST_SECONDS)
        if settings is None or not is_own_process(connection):
            return 0
        connection.sendall(READY)
        request, files = receive(connection)
        different = dict(request["settings"].items() ^ settings.items())
        is_accepted = not different
        if different:
            why = f"these variables differ from the fork server's: {', '.join(sorted(different))}"
            print(f"not forked, because {why}", flush=True)  # noqa: T201 - goes to Ray's logs
        if is_accepted and os.fork() == 0:
            listener.close()
            connection.close()
            become_worker(request, files, own_files)
        for file in files:
            os.close(file)
        if is_accepted:
            connection.sendall(FORKED)
            return 1
    return 0


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request and the launcher's open files. Raises OSError, ValueError and, without a request, struct.error."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, len(STANDARD_FILES))
    with contextlib.ExitStack() as undo:
        for file in files:
            undo.callback(os.close, file)
        content = b""
        while part := connection.recv(min(65536, LENGTH.unpack(head)[0] - len(content))):
            content += part
        request = json.loads(content)
        undo.pop_all()
    return request, list(files)


def become_worker(request: dict[str, Any], files: list[int], own_files: tuple[int, ...]) -> NoReturn:
    """Run the program of a worker process as a new interpreter would."""
    try:
        os.setpgid(0, 0)  # Ray kills the whole process group of a worker that has ended
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file, standard in zip(files, STANDARD_FILES, strict=True):
            os.dup2(file, standard)
        for file in (*files, *own_files):
            os.close(file)
        os.umask(request["umask"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        set_threads()
        reseed()
        sys.argv[:] = request["arguments"]
        run_program(Path(sys.argv[0]))
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - this process must not go on as a fork server
        traceback.print_exc()
    os._exit(1)


def set_threads() -> None:
    """As torch and NumPy would do at their import; without threadpoolctl, NumPy keeps one thread."""
    count = int(os.environ.get("OMP_NUM_THREADS") or os.environ.get(THREADS) or 1)
    if count > 1 and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)
        with contextlib.suppress(ImportError):
            importlib.import_module("threadpoolctl").threadpool_limits(count, "blas")


def reseed() -> None:
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()  # those of GPUs are made in the worker


def run_program(path: Path) -> None:
    module = ModuleType("__main__")
    module.__dict__["__file__"] = str(path)
    sys.modules["__main__"] = module
    exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102
    sys.exit(0)
