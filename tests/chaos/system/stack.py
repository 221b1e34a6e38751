"""A whole system on this machine, in separate processes: database, MLflow, Ray, services, agents."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from service.stack.components import NODE_ENVIRONMENT
from service.stack.mlflow_command import MLFLOW_ENVIRONMENT, mlflow_server_command
from service.stack.ports import free_port
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.chaos.faults.schedule import Target
from tests.chaos.system.components import Component, Postgres, Program, answers, listens
from tests.chaos.system.network import network_command
from tests.chaos.system.stand_ins import Disk, Storage, WallClock, can_mount, stepped_clock
from tests.ray_nodes import LEAN_HEAD, LEAN_NODE

START_SECONDS = 180.0


@dataclass(frozen=True)
class Size:
    """`services`, `agents` and `clients`, users' programs that run trials, are counts. SQLite allows one service.

    With `up` the system is one `paceline up`, on SQLite. Every second agent has one address for all services, the
    others have one for each.
    """

    database: str = "postgresql"
    services: int = 2
    agents: int = 2
    clients: int = 0
    cpus: int = 16
    lease_seconds: float = 20
    up: bool = False


@dataclass(frozen=True)
class Home:
    """The directories of a run."""

    root: Path

    def __post_init__(self) -> None:
        for directory in (self.journal, self.logs, self.data, self.ray, self.clocks):
            directory.mkdir(parents=True, exist_ok=True)

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def storage(self) -> Path:
        """The service's default directory for checkpoints."""
        return self.data / "checkpoints"

    @property
    def clocks(self) -> Path:
        return self.root / "clocks"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"

    @property
    def artifacts(self) -> Path:
        """The MLflow server's directory for artifacts."""
        return self.mlflow / "artifacts"

    @property
    def ray(self) -> Path:
        return self.root / "r"


class Stack:
    """A system whose components start in the order of `components`."""

    def __init__(self, size: Size, home: Home) -> None:
        self.size, self.home = size, home
        self.mlflow_url = f"http://127.0.0.1:{free_port()}"
        self.ray_port = free_port()
        self.service_ports = [free_port() for _ in range(self.services)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.service_ports]
        self.postgres = Postgres(home.root / "pg") if size.database == "postgresql" else None
        self.database_url = f"sqlite:///{home.data / 'paceline.db'}"
        self.components: list[Component] = []

    @property
    def services(self) -> int:
        return self.size.services if self.size.database == "postgresql" else 1

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def service_urls(self) -> dict[str, str]:
        """The URLs by the name of the service."""
        return {f"service-{number}": url for number, url in enumerate(self.urls)}

    @property
    def agents(self) -> list[str]:
        return [f"agent-{number}" for number in range(self.size.agents)]

    @property
    def service_of(self) -> dict[str, str]:
        """The name of the service that an agent calls first, if it knows the services apart."""
        names = list(self.service_urls)
        return {agent: names[n % len(names)] for n, agent in enumerate(self.agents) if not self._has_one_address(n)}

    def start(self) -> None:
        """Raise TimeoutError when a component does not start."""
        if self.postgres:
            if can_mount():
                (self.home.root / "pg").mkdir()
                self._add(Disk(self.home.root / "pg", "disk of postgresql", Target.DATABASE))
            self._add(self.postgres)
            self.database_url = self.postgres.uri.replace("postgresql://", "postgresql+psycopg://")
        database = Database(self.database_url)
        upgrade(database)
        database.close()
        self._add(Disk(self.home.data))
        self._add(Storage(Target.STORAGE, self.home.storage), Storage(Target.ARTIFACTS, self.home.artifacts))
        self._add(self._ray(), self._mlflow())
        self._add(*(WallClock(name, self.home.clocks / name) for name in [*self.service_urls, *self.agents]))
        self._add(*(self._service(number) for number in range(self.services)))
        ports = [self._ports_of(number) for number in range(self.size.agents)]
        self._add(*(self._network(number, own) for number, own in enumerate(ports)))
        self._add(*(self._agent(number, own) for number, own in enumerate(ports)))
        self._add(*(self._client(number) for number in range(self.size.clients)))

    def _add(self, *components: Component) -> None:
        for component in components:
            self.components.append(component)
            component.start()
        for component in components:
            until(component.ready, f"{component.name} is up", START_SECONDS)

    def stop(self) -> None:
        for component in reversed(self.components):
            with contextlib.suppress(OSError):
                component.stop()

    def of(self, target: Target) -> list[Component]:
        return [component for component in self.components if component.target is target]

    def _program(self, name: str, target: Target, command: Sequence[str], ready: Callable[[], bool]) -> Program:
        return Program(name, target, command, self.env, self.home.logs / f"{name}.log", ready)

    @property
    def env(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in {"RAY_ADDRESS", "PYTHONPATH"}}
        return (
            inherited
            | MLFLOW_ENVIRONMENT
            | NODE_ENVIRONMENT
            | {
                "PACELINE_DATA_DIR": str(self.home.data),
                "PACELINE_DATABASE_URL": self.database_url,
                "PACELINE_MLFLOW_URI": self.mlflow_url,
                "PACELINE_LEASE_SECONDS": str(self.size.lease_seconds),
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
                "PYTHONUNBUFFERED": "1",
                "PYTHONWARNINGS": "ignore",
                "TMPDIR": str(self.home.ray),
            }
        )

    @property
    def cluster(self) -> tuple[int, dict[str, str]]:
        """The port of the Ray head, and the environment of a program that joins its cluster."""
        return self.ray_port, self.env

    def _ray(self) -> Program:
        command = ["ray.scripts.scripts", "start", "--head", "--block", *LEAN_HEAD, *LEAN_NODE]
        command += ["--port", str(self.ray_port), "--temp-dir", str(self.home.ray)]
        command += ["--num-cpus", str(self.size.cpus), "--node-ip-address", "127.0.0.1"]
        return self._program("ray", Target.RAY, command, listens(self.ray_port))

    def _mlflow(self) -> Program:
        port = int(self.mlflow_url.rpartition(":")[2])
        whole = mlflow_server_command(self.home.mlflow, "127.0.0.1", port)
        command = whole[whole.index("-m") + 1 :]
        return self._program("mlflow", Target.MLFLOW, command, partial(answers, f"{self.mlflow_url}/health"))

    def _service(self, number: int) -> Program:
        url = self.urls[number]
        command = ["service.cli", "serve", "--port", str(self.service_ports[number])]
        return self._with_clock(f"service-{number}", Target.SERVICE, command, partial(answers, f"{url}/readyz"))

    def _has_one_address(self, agent: int) -> bool:
        """Whether the services are behind one address for this agent. The others have an address for each service."""
        return self.services > 1 and agent % 2 == 1

    def _ports_of(self, agent: int) -> list[int]:
        return [free_port() for _ in range(1 if self._has_one_address(agent) else self.services)]

    def _network(self, agent: int, ports: Sequence[int]) -> Program:
        behind = [self.service_ports] if self._has_one_address(agent) else [[one] for one in self.service_ports]
        command = network_command(list(zip(ports, behind, strict=True)))
        return self._program(f"network of agent-{agent}", Target.NETWORK, command, listens(ports[0]))

    def _agent(self, number: int, ports: Sequence[int]) -> Program:
        name, first = f"agent-{number}", number % len(ports)
        urls = [f"http://127.0.0.1:{port}" for port in (*ports[first:], *ports[:first])]
        command = ["service.cli", "agent", "--name", name, "--url", ",".join(urls)]
        command += ["--ray-address", f"127.0.0.1:{self.ray_port}"]
        return self._with_clock(name, Target.AGENT, command, lambda: True)

    def _with_clock(self, name: str, target: Target, command: Sequence[str], ready: Callable[[], bool]) -> Program:
        """A program, with its children, of this repository's code, whose clock can be stepped."""
        env = self.env | stepped_clock(self.home.clocks / name)
        return Program(name, target, command, env, self.home.logs / f"{name}.log", ready)

    def _client(self, number: int) -> Program:
        command = ["tests.chaos.external_client", str(self.home.journal), *self.urls]
        return self._program(f"client-{number}", Target.CLIENT, command, lambda: True)


def until(condition: Callable[[], bool], what: str, seconds: float, every: float = 0.2) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(every)
