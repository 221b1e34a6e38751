"""The children that a worker forks give up its connection to the raylet and Ray's SIGTERM handler, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.timeouts import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes a second

WORKER = """
import os, signal, socket, sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from ray._private import worker
from trainer.ray_train.processes.forked_children import detach_children_from_ray

raylet, plasma = f"{sys.argv[1]}/raylet", f"{sys.argv[1]}/plasma_store"

def connected(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        own = socket.socket(socket.AF_UNIX)
        own.connect(path)
        return own, listener.accept()[0]

def file(connection):
    return os.readlink(f"/proc/self/fd/{connection.fileno()}").split(":")[0]

def in_child(function):
    if (child := os.fork()) == 0:
        function()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

at_start = []
os.register_at_fork(after_in_child=lambda: [each() for each in at_start])

def of_ray(*_):
    pass

of_ray.__module__ = worker.__name__
signal.signal(signal.SIGTERM, of_ray)

def own_handler(*_):
    pass

def handler():
    return getattr(signal.getsignal(signal.SIGTERM), "__name__", "default")

def use_the_number_again():
    print("child:", file(own), file(of_plasma), handler(), flush=True)
    signal.signal(signal.SIGTERM, own_handler)
    os.dup2(os.open(sys.argv[1], os.O_RDONLY), own.fileno())
    in_child(lambda: print("its child:", file(own), handler(), flush=True))

own, raylets_end = connected(raylet)
of_plasma, _ = connected(plasma)
worker._global_node = SimpleNamespace(raylet_socket_name=raylet)
before = len(os.listdir("/proc/self/fd"))
detach_children_from_ray()
print("new descriptors:", len(os.listdir("/proc/self/fd")) - before, flush=True)
detach_children_from_ray()
in_child(use_the_number_again)
at_start.append(lambda: os.kill(os.getpid(), signal.SIGTERM))
print("child that is ended at its start:", in_child(lambda: None), flush=True)
with ThreadPoolExecutor(1) as thread:
    print("that of a thread:", thread.submit(in_child, lambda: None).result(), flush=True)
at_start.clear()
print("blocked:", signal.pthread_sigmask(signal.SIG_BLOCK, ()), in_child(lambda: None), flush=True)
waiting, end = os.pipe()
if os.fork() == 0:
    os.close(end)
    os.read(waiting, 1)
    os._exit(0)
own.close()
print("raylet reads", raylets_end.recv(1))
"""


def test_a_child_keeps_the_connection_to_no_raylet_open_and_all_other_files(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WORKER, str(tmp_path)]
    said = subprocess.run(program, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    assert said.splitlines() == [
        "new descriptors: 0",
        "child: /dev/null socket default",
        f"its child: {tmp_path} own_handler",
        "child that is ended at its start: -15",
        "that of a thread: -15",
        "blocked: set() 0",
        "raylet reads b''",
    ]


SIGNALLED = """
import os, signal
from types import SimpleNamespace
from ray._private import worker
from trainer.ray_train.processes.forked_children import detach_children_from_ray

def of_ray(*_):
    raise SystemExit(1)

of_ray.__module__ = worker.__name__
signal.signal(signal.SIGTERM, of_ray)
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
worker._global_node = SimpleNamespace(raylet_socket_name="none")
detach_children_from_ray()
if os.fork() == 0:
    os._exit(0)
"""


def test_a_sigterm_that_comes_while_the_main_thread_forks_ends_the_process() -> None:
    """Ray's handler ends it by an exception, which Python ignores where it is raised in the middle of a fork."""
    ended = subprocess.run([sys.executable, "-c", SIGNALLED], check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == -15
