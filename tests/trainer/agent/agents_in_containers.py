"""Agents whose process numbers are those of a container."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from trainer.agent.process_identity import Instance

SHOWING = """
import json, os, pathlib, sys
from trainer.agent.process_identity import instance_of
from trainer.agent.liveness_lock import LivenessLock
lock = LivenessLock(pathlib.Path(sys.argv[1]))
lock.acquire(instance := instance_of(os.getpid()))
print(json.dumps(instance), flush=True)
input()
"""


@contextmanager
def in_a_container(state: Path) -> Iterator[tuple[Instance, Callable[[], None]]]:
    """A process in its own PID namespace, as in a container, in the place of an agent; and a function that kills it."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SHOWING, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        said = outer.stdout.readline()
        if not said:
            pytest.skip("this user may not create a PID namespace")
        (inner,) = psutil.Process(outer.pid).children()

        def kill() -> None:
            inner.kill()
            outer.wait()

        try:
            yield json.loads(said), kill
        finally:
            if outer.poll() is None:
                kill()
