"""A whole system as one `paceline up`, which starts its parts itself and restarts what dies."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from service.stack.http_checks import AGENT_NAME
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.ports import free_port
from service.stack.state_file import read_state
from tests.chaos.faults.schedule import Target
from tests.chaos.system.components import Component, Program, process_tree, signal_processes
from tests.chaos.system.stack import Home, Size, Stack
from tests.chaos.system.stand_ins import Disk, Storage

GUARDIAN = "service.stack.orphan_cleanup"
PARTS = {
    "service-0": (Target.SERVICE, "serve"),
    AGENT_NAME: (Target.AGENT, "agent"),
    "mlflow": (Target.MLFLOW, "service.stack.mlflow_single_process"),
    "ray": (Target.RAY, "ray.scripts.scripts"),
}
"""By name, each with a word of its command."""


class UpHome(Home):
    @property
    def mlflow(self) -> Path:
        return self.data / "mlflow"


class Up(Program):
    """`paceline up` itself. Its parts live on when it is killed: its guardian ends them, or else the next `up`."""

    def __init__(self, command: Sequence[str], stack: Stack) -> None:
        self._data = stack.home.data
        ready = partial(_is_up, self._data)
        super().__init__("up", Target.UP, command, stack.env, stack.home.logs / "up.log", ready)

    def kill(self) -> int:
        return self._kill([])

    def kill_with_guardian(self) -> int:
        return self._kill(self.children(GUARDIAN))

    def _kill(self, others: Sequence[psutil.Process]) -> int:
        assert self._process is not None
        signal_processes([psutil.Process(self._process.pid), *others])
        self._process.wait()
        return self._process.pid

    def children(self, word: str) -> list[psutil.Process]:
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self.pid).children() if self.is_alive() else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += [one] if word in one.cmdline() else []
        return found

    def stop(self) -> None:
        super().stop()
        if left := CleanupRecord.read(self._data / "up.cleanup"):
            left.clean_up()


class Part:
    """A part of the stack that `up` has started, and that it restarts: `start` does nothing."""

    def __init__(self, name: str, up: Up) -> None:
        self.name, self._up = name, up
        self.target, self._word = PARTS[name]

    @property
    def pid(self) -> int | None:
        return next((one.pid for one in self._up.children(self._word)), None)

    def processes(self) -> list[psutil.Process]:
        leader = self.pid
        found = process_tree(leader) if leader else []
        return sorted(found, key=lambda process: process.pid != leader)

    def kill(self) -> int:
        leader, *others = self.processes()
        signal_processes([leader, *others])
        return leader.pid

    def is_alive(self) -> bool:
        return self.pid is not None

    def ready(self) -> bool:
        return self.is_alive()

    def start(self) -> None:
        """`up` does it."""

    def stop(self) -> None:
        """`up` does it."""


class UpStack(Stack):
    """Its components are `up`, what is mounted or away, and users' programs. The parts of `up` are targets only."""

    def __init__(self, size: Size, home: Home) -> None:
        super().__init__(size, home)
        self._parts: list[Component] = []

    def start(self) -> None:
        self._add(Disk(self.home.data))
        self._add(Storage(Target.STORAGE, self.home.storage), Storage(Target.ARTIFACTS, self.home.artifacts))
        up = self._up()
        self._add(up)
        self._parts = [Part(name, up) for name in PARTS]
        self._add(*(self._client(number) for number in range(self.size.clients)))

    @property
    def agents(self) -> list[str]:
        return [AGENT_NAME]

    def of(self, target: Target) -> list[Component]:
        return [one for one in (*self.components, *self._parts) if one.target is target]

    def _up(self) -> Up:
        mlflow_port = self.mlflow_url.rpartition(":")[2]
        command = ["service.cli", "up", "--data-dir", str(self.home.data), "--cpus", str(self.size.cpus)]
        return Up([*command, "--port", str(self.service_ports[0]), "--mlflow-port", mlflow_port], self)

    @property
    def cluster(self) -> tuple[int, dict[str, str]]:
        """Each start of Ray has a port of its own, and each `up` a token. A node's address is as `up` has set it."""
        settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.home.data / "ray-token")}
        settings |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        ray = next((part.processes() for part in self._parts if part.target is Target.RAY), [])
        command = ray[0].cmdline() if ray else []
        port = command[command.index("--port") + 1] if "--port" in command else free_port()
        return int(port), self.env | settings


def _is_up(data: Path) -> bool:
    return read_state(data) is not None
