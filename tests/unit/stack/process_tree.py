"""Child processes of a test, and what they print."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from service.stack.child_process import ChildProcess
from service.stack.process_tags import tagged_processes
from service.stack.supervisor import Component
from tests.timeouts import PATIENCE_SECONDS, wait_until

SLEEP = "import time; time.sleep(100)"


class Tree:
    """Creates children that print process ids where the test can read them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[ChildProcess] = []

    def child(self, name: str, program: str) -> ChildProcess:
        return self.child_of(name, lambda: [sys.executable, "-c", program])

    def child_of(self, name: str, command: Callable[[], list[str]]) -> ChildProcess:
        log = self.directory / f"{name}.log"
        log.touch()
        child = ChildProcess(command, os.environ, log)
        self.children.append(child)
        return child

    def component(self, name: str, program: str, is_ready: Callable[[], bool] = lambda: True) -> Component:
        return Component(name, self.child(name, program), is_ready, grace_seconds=PATIENCE_SECONDS)

    def pids(self, name: str) -> list[int]:
        """Return the process ids that `name` has printed so far."""
        return [int(line) for line in (self.directory / f"{name}.log").read_text().split()]

    def wait_for_pids(self, name: str, count: int) -> None:
        """Its failure, which has been seen once in hundreds of runs, says which of the processes live, and how."""
        try:
            wait_until(lambda: len(self.pids(name)) == count)
        except AssertionError as error:
            living = [
                (one.pid, one.status(), one.cmdline()[-1][:40])
                for child in self.children
                for one in tagged_processes(child.tag)
            ]
            raise AssertionError(f"{error}: printed {self.pids(name)}, living {living}") from error

    def has_printed(self, name: str, count: int) -> bool:
        return len(self.pids(name)) == count


def never() -> bool:
    return False
