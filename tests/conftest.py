"""A real service, on SQLite and on PostgreSQL, and a small client of it."""

import asyncio
import os
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

# Before anything imports numpy or torch. Three files are tested at a time, on as few as two cores: threads that wait
# for each other would take several times the CPU time of the work. Processes that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import httpx
import hypothesis
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck
from starlette.routing import BaseRoute
from xdist.scheduler import LoadFileScheduling

from service.api.http.server.server_config import server_config
from service.app import state as app_state
from service.app.application import create_app
from service.runtime.computation.compute_pool import ComputePool
from service.settings import Settings
from tests.documented_events import undocumented
from tests.timeouts import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]
if not Path(app_state.__file__).is_relative_to(ROOT):
    raise pytest.UsageError(f"{app_state.__file__} would be tested: give {ROOT} a .venv of its own (`make check`)")

pytest_plugins = ["tests.garbage_collection", "tests.memory_directory", "tests.databases"]

# How long an example takes, or its generation, says nothing about the search, and depends on what else runs. `make
# test` tries the same examples each time; `make check` is content with a few of them, and others each time.
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
hypothesis.settings.register_profile("whole", **_ANY_SPEED, max_examples=100, derandomize=True)
hypothesis.settings.register_profile("quick", **_ANY_SPEED, max_examples=10)
hypothesis.settings.load_profile("whole")


LONGEST = (
    "tests/trainer/test_",
    "tests/trainer/",
    "tests/e2e/",
    "tests/chaos/",
    "tests/api/contract/test_schemathesis.py",
)
"""What takes minutes, the longest first."""
STARTED_ONCE = {
    "tests/trainer/test_": "Ray and an agent for what trials do",
    "tests/trainer/": "Ray and an agent for what agents, slots and workers do",
    "tests/mirror/": "MLflow",
    "tests/e2e/test_demo.py": "the demo's stack",
    "tests/e2e/test_running_stack.py": "the demo's stack",
    "tests/e2e/test_elastic.py": "the demo's stack",
    "tests/e2e/test_best_report.py": "the demo's stack",
    "tests/e2e/test_large_worker_groups.py": "the demo's stack",
}
"""What files share, by their folder or name. It takes many seconds to start."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files first that take longest: after the known ones, those that start Ray, then others with slow tests.

    pytest-xdist gives whole files to its workers in this order, so that none has a long one left at the end.
    """
    items[:] = [item for item in items if _is_for_its_database(item)]
    ranks: dict[Path, int] = {}
    for item in items:
        rank = sum(item.get_closest_marker(name) is not None for name in ("ray", "slow"))
        ranks[item.path] = max(rank, ranks.get(item.path, 0))
    items.sort(key=lambda item: (_place_among_longest(item.nodeid), -ranks[item.path]))


def _is_for_its_database(item: pytest.Item) -> bool:
    """Whether its mark `databases`, if it has one, names the database of this repetition."""
    mark, callspec = item.get_closest_marker("databases"), getattr(item, "callspec", None)
    return mark is None or callspec is None or callspec.params.get("database_url", mark.args[0]) in mark.args


def _place_among_longest(nodeid: str) -> int:
    return next((place for place, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))


class SharedStartScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files that share what is started once to one worker: another worker would start it again."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((what for start, what in STARTED_ONCE.items() if nodeid.startswith(start)), None)
        return shared or str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedStartScheduling | None:
    return SharedStartScheduling(config, log) if config.getoption("dist") == "loadfile" else None


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
        patch.setattr(app_state, "ComputePool", pool)
        yield
    for one in pools.values():
        ComputePool.close(one)


@pytest.fixture(scope="session", autouse=True)
def shared_tls_context() -> Iterator[None]:
    """Load the TLS certificates once: httpx does it for each client, and no test uses TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


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
    """A server without uvicorn's pauses of a tenth of a second: tests start and stop hundreds of them."""

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
    """Every app has these, and FastAPI prepares each route at its first call, which takes a tenth of a second."""
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
        return self.call("GET", path, status, **arguments)

    def post(self, path: str, status: int = 200, **arguments: Any) -> Any:
        return self.call("POST", path, status, **arguments)

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
        assert not undocumented(found), "add these to docs/reference/events.md"
        return found

    def call(self, method: str, path: str, status: int, **arguments: Any) -> Any:
        """The body of the answer, which must have the status; None if there is no body."""
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
    """For a test that needs another number of them than the profile's hundred; the quick one has a tenth."""
    profile = hypothesis.settings.default
    assert profile
    return hypothesis.settings(max_examples=max(1, count * profile.max_examples // 100))


def changed(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, **changes)
