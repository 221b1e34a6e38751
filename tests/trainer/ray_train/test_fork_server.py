"""The fork server and its launcher, as processes of their own. A small program takes the place of Ray's workers'."""

import contextlib
import inspect
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.processes import is_alive, is_fork_server, left_alive
from tests.trainer.conftest import until
from trainer.ray_train.processes import fork_server, runtime_environments
from trainer.ray_train.processes.fork_server import THREADS
from trainer.ray_train.processes.runtime_environments import forked_runtime_env, worker_runtime_env

pytestmark = [
    pytest.mark.slow,  # the fork server's imports take four seconds
    pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux"),
]

WORKER = """
import gc, json, os, random, sys, threading
import numpy, ray, torch
threads = []
other = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
other.start()
other.join()
facts = {
    "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "arguments": sys.argv, "folder": os.getcwd(),
    "environment": dict(os.environ), "main": sys.modules["__main__"].__file__, "path": sys.path,
    "threads": threads[0], "python_threads": threading.active_count(), "umask": os.umask(0),
    "random": [
        random.random(), float(numpy.random.rand()), torch.rand(1).item(),
        ray.TaskID.for_fake_task(ray.JobID.from_int(1)).hex(),
    ],
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "has_dynamo": "torch._dynamo" in sys.modules, "cuda": torch.cuda.is_initialized(),
    "modules_of_users": [name for name in sys.modules if name.startswith(("trainer", "tests", "service"))],
}
print("printed")
with open(sys.argv[2] + ".new", "w") as file:
    json.dump(facts, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
if sys.argv[-1] == "stay":
    sys.stdin.read()
sys.exit(7)
"""

SMALL_WORKER = """
import json, os, sys
facts = {"pid": os.getpid(), "parent": os.getppid(), "environment": dict(os.environ)}
with open(sys.argv[2] + ".new", "w") as file:
    json.dump(facts, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
sys.stdin.read()
"""
"""Imports neither torch nor Ray, each of which takes a process seconds."""

THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@cache
def patient_launcher(modules: tuple[str, ...] = (), *, is_small: bool, request_seconds: float) -> str:
    """The launcher's command, with a program that waits long: no test is about how long it waits.

    The fork server of a small one imports numpy alone, and waits `request_seconds` for a request.
    """
    seconds = {"START_SECONDS": 240.0, "IDLE_SECONDS": 240.0, "REQUEST_SECONDS": request_seconds}
    program = inspect.getsource(fork_server)
    for name, value in seconds.items():
        program, count = re.subn(rf"^{name} = .*", f"{name} = {value}", program, flags=re.MULTILINE)
        assert count == 1
    if is_small:
        preloaded = re.compile(r"^PRELOADED = \(.*?^\)", re.MULTILINE | re.DOTALL)
        program, count = preloaded.subn('PRELOADED = ("numpy",)', program)
        assert count == 1
        later = 'PRELOADED_LATER = ("sklearn.model_selection",)'
        assert later in program
        program = program.replace(later, "PRELOADED_LATER = ()")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime_environments, "inspect", SimpleNamespace(getsource=lambda _module: program))
        return str(forked_runtime_env(modules)["py_executable"])


@dataclass
class FakeRaylet:
    """A process with the command line of a raylet, and the worker processes that are started for it."""

    folder: Path
    process: subprocess.Popen[bytes]
    is_small: bool = False
    modules: tuple[str, ...] = ()
    request_seconds: float = 240.0
    node: str = field(default_factory=lambda: uuid.uuid4().hex)
    workers: list["Worker"] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path, *, is_small: bool = False) -> "FakeRaylet":
        """A small one's workers and fork server import little."""
        option = f"--python_worker_command={sys.executable} setup_worker.py --and more"
        process = subprocess.Popen([sys.executable, "-c", "input()", option], stdin=subprocess.PIPE)
        (folder / "session/logs").mkdir(parents=True)
        (folder / "worker.py").write_text(SMALL_WORKER if is_small else WORKER)
        return cls(folder, process, is_small)

    def another_node(self) -> "FakeRaylet":
        """A node without a fork server; this one ends its workers."""
        return replace(self, node=uuid.uuid4().hex)

    @property
    def log(self) -> str:
        return (self.folder / "session/logs/paceline-fork-server.log").read_text()

    def run(self, *last: str, **variables: str) -> "Worker":
        """As Ray does it: a shell with the command, and its arguments quoted."""
        result = self.folder / uuid.uuid4().hex
        options = [f"--node-id={self.node}", f"--temp-dir={self.folder}", "--session-name=session"]
        arguments = map(shlex.quote, [str(self.folder / "worker.py"), "one argument", str(result), *options, *last])
        launcher = patient_launcher(self.modules, is_small=self.is_small, request_seconds=self.request_seconds)
        command = f"exec {launcher} {' '.join(arguments)}"
        env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        env |= {"RAY_RAYLET_PID": str(self.process.pid), "RAY_JOB_ID": "01000000", **variables}
        with result.with_suffix(".out").open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", command], env=env, cwd=self.folder, stdin=subprocess.PIPE, stdout=output, umask=0o027
            )
        self.workers.append(Worker(process, result))
        return self.workers[-1]

    def facts(self, *last: str, **variables: str) -> dict[str, Any]:
        return self.run(*last, **variables).facts()

    def end(self) -> None:
        for worker in self.workers:
            worker.launcher.communicate()  # closes its input, and so ends a worker that stays
        self.process.communicate()


@dataclass
class Worker:
    launcher: subprocess.Popen[bytes]
    result: Path

    def facts(self) -> dict[str, Any]:
        until(self.result.exists, f"the worker's facts in {self.result}")
        found: dict[str, Any] = json.loads(self.result.read_text())
        return found


@pytest.fixture(scope="module")
def raylet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeRaylet]:
    found = FakeRaylet.start(tmp_path_factory.mktemp("raylet"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def small_raylet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeRaylet]:
    """For the tests that are not about what a worker process is like."""
    found = FakeRaylet.start(tmp_path_factory.mktemp("small-raylet"), is_small=True)
    yield found
    found.end()


def is_forked(facts: dict[str, Any]) -> bool:
    return is_fork_server(facts["parent"])


def server_of(facts: dict[str, Any]) -> psutil.Process:
    assert is_forked(facts)  # or else its parent is this process
    return psutil.Process(facts["parent"])


def test_workers_are_forked_from_one_server_and_are_like_new_processes(raylet: FakeRaylet) -> None:
    first, second = raylet.run("stay", FIRST="1"), raylet.run("stay", SECOND="2")
    one, two = first.facts(), second.facts()
    assert is_forked(one)
    assert one["parent"] == two["parent"]
    assert one["has_dynamo"]
    for facts in (one, two):
        assert facts["group"] == facts["pid"]
        assert facts["arguments"][:2] == [str(raylet.folder / "worker.py"), "one argument"]
        assert facts["main"] == facts["arguments"][0]
        assert facts["folder"] == str(raylet.folder)
        assert facts["folder"] in facts["path"]
        assert "" not in facts["path"]
        assert facts["umask"] == 0o027
        assert facts["threads"] == facts["python_threads"] == 1
        assert not facts["cuda"]
        assert facts["files"] == [0, 1, 2]
        assert facts["modules_of_users"] == []
    assert one["environment"].keys() ^ two["environment"].keys() == {"FIRST", "SECOND"}
    assert all(mine != others for mine, others in zip(one["random"], two["random"], strict=True))
    assert first.result.with_suffix(".out").read_text() == "printed\n"
    assert first.launcher.wait(60) == 0


def test_each_job_has_a_server_of_its_own(small_raylet: FakeRaylet) -> None:
    one, other = small_raylet.facts("stay"), small_raylet.facts("stay", RAY_JOB_ID="02000000")
    assert is_forked(other)
    assert other["parent"] != one["parent"]


def test_a_worker_gets_as_many_threads_as_cpus_unless_its_environment_says_otherwise(raylet: FakeRaylet) -> None:
    cpus = {"num_workers": 2, "resources_per_worker": {"CPU": 3.5}}
    assert worker_runtime_env({}, cpus) == {"env_vars": {THREADS: "3"}}
    by_cpus, by_user = (
        raylet.facts("stay", **{THREADS: "3"}),
        raylet.facts("stay", **{THREADS: "3"}, OMP_NUM_THREADS="2"),
    )
    assert is_forked(by_cpus)
    assert is_forked(by_user)
    assert (by_cpus["threads"], by_user["threads"]) == (3, 2)
    assert by_user["environment"]["OMP_NUM_THREADS"] == "2"


def test_an_environment_equal_to_rays_own_asks_for_nothing() -> None:
    assert worker_runtime_env({"OMP_NUM_THREADS": "1"}, {"num_workers": 2}) == {}
    assert worker_runtime_env({"OMP_NUM_THREADS": "2"}, {"num_workers": 2}) == {"env_vars": {"OMP_NUM_THREADS": "2"}}


def test_a_worker_with_other_variables_that_libraries_read_at_their_import_is_not_forked(raylet: FakeRaylet) -> None:
    assert is_forked(raylet.facts("stay"))
    worker = raylet.run("stay", PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    facts = worker.facts()
    assert facts["pid"] == worker.launcher.pid
    assert not facts["has_dynamo"]
    assert "differ from the fork server's: PYTORCH_NO_CUDA_MEMORY_CACHING" in raylet.log
    worker.launcher.communicate()
    assert worker.launcher.returncode == 7


@pytest.mark.parametrize("name", ["RAY_DATA_SHUFFLE_COMPRESSION", "RAY_DATA_SHUFFLE_INPUT_BATCH_BYTES"])
def test_a_variable_that_ray_data_reads_at_its_import_reaches_the_worker(small_raylet: FakeRaylet, name: str) -> None:
    """`ray.data.context` keeps its value."""
    assert is_forked(small_raylet.facts("stay"))
    worker = small_raylet.run("stay", **{name: "1"})
    assert worker.facts()["pid"] == worker.launcher.pid
    assert f"differ from the fork server's: {name}" in small_raylet.log


def test_variables_that_rays_libraries_read_later_neither_keep_a_worker_from_the_server_nor_stay_there(
    small_raylet: FakeRaylet,
) -> None:
    raylet = small_raylet.another_node()
    variables = {"RAY_DATA_SHUFFLE_MAP_WORKER": "first", "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "1234"}
    first, second = raylet.facts("stay", **variables), raylet.facts("stay")
    assert is_forked(first)
    assert first["parent"] == second["parent"]
    assert first["environment"].items() >= variables.items()
    assert second["environment"].keys().isdisjoint(variables)
    assert b"1234" not in Path(f"/proc/{second['parent']}/environ").read_bytes()


READS = """
import importlib, os, sys
read = set()
find = os._Environ.__getitem__
def noting(self, name):
    read.add(name)
    return find(self, name)
os._Environ.__getitem__ = noting
os._Environ.__contains__ = lambda self, name: read.add(name) or self.encodekey(name) in self._data
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sorted(read))
"""


def test_no_import_reads_a_variable_whose_value_does_not_keep_a_worker_from_the_server() -> None:
    """Except for the number of threads, which a fork sets. Credentials are not read either."""
    program = [sys.executable, "-c", READS, *fork_server.PRELOADED, *fork_server.PRELOADED_LATER]
    names = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert "RAY_DATA_SHUFFLE_COMPRESSION" in names
    read = {name for name in names if name.startswith(fork_server.IMPORT_SETTINGS)} - {"OMP_NUM_THREADS"}
    assert [name for name in sorted(read) if not fork_server.is_import_setting(name)] == []


def test_a_killed_server_leaves_its_workers_alive_and_is_replaced(small_raylet: FakeRaylet) -> None:
    first = small_raylet.facts("stay")
    server = server_of(first)
    server.kill()
    assert not left_alive([server])  # until then its socket takes connections
    second = small_raylet.facts("stay")
    assert is_forked(second)
    assert second["parent"] != first["parent"]
    assert is_alive(first["pid"])


def test_a_worker_starts_by_itself_where_no_server_answers(small_raylet: FakeRaylet) -> None:
    without = small_raylet.another_node()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0paceline-fork-server.{os.getuid()}.{without.node}.01000000")
        other.listen()
        worker = without.run("stay")
        connection, _ = other.accept()
    connection.close()
    assert worker.facts()["pid"] == worker.launcher.pid


def test_a_launcher_waits_for_the_other_one_that_is_about_to_listen(small_raylet: FakeRaylet) -> None:
    without = small_raylet.another_node()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0paceline-fork-server.{os.getuid()}.{without.node}.01000000")
        worker = without.run("stay")
        time.sleep(0.5)  # in which it usually finds that nothing listens
        other.listen()
        other.settimeout(60)
        connection, _ = other.accept()
    connection.close()
    assert worker.facts()["pid"] == worker.launcher.pid


def test_a_launcher_waits_for_a_slow_fork(small_raylet: FakeRaylet) -> None:
    """Ray would wait for the process of one that has given up, until its own limit."""
    without = replace(small_raylet.another_node(), request_seconds=0.05)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0paceline-fork-server.{os.getuid()}.{without.node}.01000000")
        other.listen()
        worker = without.run("stay")
        connection, _ = other.accept()
    with connection:
        connection.sendall(fork_server.READY)
        request, files = fork_server.receive(connection)
        for file in files:
            os.close(file)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.launcher.wait(1)  # as long as the fork takes
        connection.sendall(fork_server.FORKED)
        assert worker.launcher.wait(60) == 0
    assert request["arguments"][-1] == "stay"


def test_a_launcher_that_ends_without_a_request_does_not_end_the_server(small_raylet: FakeRaylet) -> None:
    first = small_raylet.facts("stay")
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.settimeout(60)
        launcher.connect(f"\0paceline-fork-server.{os.getuid()}.{small_raylet.node}.01000000")
        assert launcher.recv(1) == fork_server.READY
    assert small_raylet.facts("stay")["parent"] == server_of(first).pid


def test_a_worker_starts_where_the_raylets_command_line_cannot_be_read(small_raylet: FakeRaylet) -> None:
    worker = small_raylet.run("stay", RAY_RAYLET_PID="0", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert worker.facts()["pid"] == worker.launcher.pid


def test_where_an_import_starts_a_thread_every_worker_starts_by_itself(tmp_path: Path) -> None:
    raylet = FakeRaylet.start(tmp_path, is_small=True)
    (tmp_path / "sitecustomize.py").write_text(THREAD)
    workers = [raylet.run("stay", PYTHONPATH=str(tmp_path)) for _ in range(2)]
    assert [worker.facts()["pid"] for worker in workers] == [worker.launcher.pid for worker in workers]
    assert raylet.log.count("forking disabled: after the import of numpy there are several threads: python") == 1
    raylet.end()


def test_modules_that_the_agent_names_are_imported_once_for_all_workers(small_raylet: FakeRaylet) -> None:
    (small_raylet.folder / "heavy.py").write_text("import os; print('imported by', os.getpid(), flush=True)")
    (small_raylet.folder / "broken.py").write_text("raise RuntimeError('no GPU here')")
    raylet = replace(small_raylet.another_node(), modules=("broken", "not_installed", "heavy"))
    workers = [raylet.facts("stay", PYTHONPATH=str(raylet.folder)) for _ in range(2)]
    assert [is_forked(facts) for facts in workers] == [True, True]
    until(lambda: f"imported by {workers[0]['parent']}" in raylet.log, "the import")
    assert "not preloaded: broken: RuntimeError('no GPU here')" in raylet.log
    assert "not_installed" not in raylet.log
    assert is_forked(raylet.facts("stay", PYTHONPATH=str(raylet.folder)))
    assert raylet.log.count("imported by") == 1


def test_variables_of_the_first_worker_do_not_reach_later_ones_through_the_server(small_raylet: FakeRaylet) -> None:
    (small_raylet.folder / "reads.py").write_text("import os; print('MY_TRIAL_VAR:', os.environ.get('MY_TRIAL_VAR'))")
    raylet = replace(small_raylet.another_node(), modules=("reads",))
    first = raylet.facts("stay", PYTHONPATH=str(raylet.folder), MY_TRIAL_VAR="mine")
    second = raylet.facts("stay", PYTHONPATH=str(raylet.folder))
    assert first["environment"]["MY_TRIAL_VAR"] == "mine"
    assert is_forked(first)
    assert first["parent"] == second["parent"]
    assert "MY_TRIAL_VAR" not in second["environment"]
    assert b"MY_TRIAL_VAR" not in Path(f"/proc/{second['pid']}/environ").read_bytes()
    until(lambda: "MY_TRIAL_VAR:" in raylet.log, "the import in the fork server")
    assert "MY_TRIAL_VAR: None" in raylet.log


def test_a_credential_of_the_first_worker_neither_stays_in_the_server_nor_keeps_others_from_it(
    small_raylet: FakeRaylet,
) -> None:
    first = small_raylet.facts("stay", NVIDIA_API_KEY="hidden")
    second = small_raylet.facts("stay", NVIDIA_API_KEY="other")
    assert is_forked(first)
    assert is_forked(second)
    assert first["parent"] == second["parent"]
    assert first["environment"]["NVIDIA_API_KEY"] == "hidden"
    assert second["environment"]["NVIDIA_API_KEY"] == "other"
    assert b"hidden" not in Path(f"/proc/{second['parent']}/environ").read_bytes()


def test_the_server_ends_with_the_raylet(small_raylet: FakeRaylet) -> None:
    server = server_of(small_raylet.facts("stay"))
    small_raylet.process.kill()
    assert not left_alive([server])
