"""The children that a worker forks give up its connection to the raylet, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.timeouts import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes a second

WORKER = """
import os, socket, sys
from types import SimpleNamespace
from ray._private import worker
from trainer.ray_train.processes.raylet_connection import release_raylet_in_children

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
    os.waitpid(child, 0)

def use_the_number_again():
    print("child:", file(own), file(of_plasma), flush=True)
    os.dup2(os.open(sys.argv[1], os.O_RDONLY), own.fileno())
    in_child(lambda: print("its child:", file(own), flush=True))

own, raylets_end = connected(raylet)
of_plasma, _ = connected(plasma)
worker._global_node = SimpleNamespace(raylet_socket_name=raylet)
before = len(os.listdir("/proc/self/fd"))
release_raylet_in_children()
print("new descriptors:", len(os.listdir("/proc/self/fd")) - before, flush=True)
release_raylet_in_children()
in_child(use_the_number_again)
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
        "child: /dev/null socket",
        f"its child: {tmp_path}",
        "raylet reads b''",
    ]
