"""Computing calls have their own processes: they are bounded, end with their callers, and affect no trial."""

import io
import json
import os
import socket
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import psutil
import pytest

from service.runtime.computation.compute_pool import MAX_WAITING, WORKERS
from service.settings import Settings
from tests.conftest import Api, a_spec, running
from tests.processes import command_line, kill_all, left_alive
from tests.timeouts import wait_until

pytestmark = pytest.mark.slow

LEASE_SECONDS = 30.0


def preview_of(parameter_count: int) -> dict[str, Any]:
    return {"n": 1000, "space": {f"x{i}": {"type": "float", "low": 0, "high": 1} for i in range(parameter_count)}}


LONG = preview_of(60)
"""Takes seconds."""
ENDLESS = preview_of(1000)
"""Takes half a minute: it ends only when it is made to."""
SHORT = LONG | {"n": 1}

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@contextmanager
def callers(service: Api, count: int, document: dict[str, Any]) -> Iterator[None]:
    """Callers that ask for previews and wait for them until the end of the block; then they close their connections."""
    body = json.dumps(document).encode()
    head = f"POST /v1/spaces/preview HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    address = service.http.base_url.host, service.http.base_url.port
    with ExitStack() as stack:
        for _ in range(count):
            caller = stack.enter_context(socket.create_connection(address))
            caller.sendall(head.encode() + body)
        yield


@on_sqlite
def test_previews_do_not_keep_heartbeats_waiting(settings: Settings) -> None:
    with running(replace(settings, lease_seconds=LEASE_SECONDS)) as service:
        name = service.create()["name"]
        held = service.ask(name)
        assert held
        with callers(service, 45, LONG):
            end = time.monotonic() + 2
            while time.monotonic() < end:
                began = time.monotonic()
                held.heartbeat()
                assert time.monotonic() - began < LEASE_SECONDS
                time.sleep(0.1)
            other = service.ask(name)
            assert other
            assert other.finish("stopped")["status"] == "stopped"
            assert held.report(accuracy=1)["decision"] == "continue"


@on_sqlite
def test_a_full_queue_refuses_more(service: Api) -> None:
    wait_until(lambda: free_places(service) == WORKERS + MAX_WAITING)  # the pool ends what earlier tests have left
    with callers(service, WORKERS + MAX_WAITING, ENDLESS):
        wait_until(lambda: free_places(service) == 0)
        refused = first_answer(service, 503)
        assert refused.json()["type"] == "urn:paceline:error:busy"
        assert int(refused.headers["Retry-After"]) > 0
        computing = workers()
    assert not left_alive(computing), "they still compute for callers that have gone"
    assert len(first_answer(service, 200).json()["samples"]) == 1


def free_places(service: Api) -> int:
    return int(service.app.state.context.compute._places._value)


def first_answer(service: Api, status: int) -> httpx.Response:
    """The first one of this status: the service notices callers that come and go a moment later."""
    while (answer := service.http.post("/v1/spaces/preview", json=SHORT)).status_code != status:
        assert answer.status_code in {200, 503}
    return answer


@on_sqlite
def test_a_computation_has_a_deadline(settings: Settings) -> None:
    with running(replace(settings, compute_seconds=0.2)) as service:
        refused = service.post("/v1/spaces/preview", 503, json=LONG)
        assert refused["type"] == "urn:paceline:error:too-much-work"
        assert refused["max_seconds"] == 0.2


@on_sqlite
def test_a_killed_worker_fails_its_own_call_only(settings: Settings) -> None:
    # Workers have a low priority: a minute may pass on a busy machine before one has computed for half a second.
    with running(replace(settings, compute_seconds=600)) as service, ThreadPoolExecutor(1) as caller:
        service.post("/v1/spaces/preview", json=SHORT)
        computing = caller.submit(service.http.post, "/v1/spaces/preview", json=ENDLESS)
        before = dict[psutil.Process, float]()

        def one_computes() -> bool:
            seconds = {worker: cpu_seconds(worker) for worker in workers()}
            return any(now > before.setdefault(worker, now) + 0.5 for worker, now in seconds.items())

        def is_killed() -> bool:
            """Spares the first try between the reading of the document and the preview: no worker has the call then."""
            kill_all(workers())
            return computing.done()

        wait_until(one_computes)
        wait_until(is_killed)
        assert (computing.result().status_code, computing.result().json()["type"]) == (
            503,
            "urn:paceline:error:unavailable",
        )
        assert len(service.post("/v1/spaces/preview", json=SHORT)["samples"]) == 1


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "compute_worker" in " ".join(command_line(child))]


def cpu_seconds(process: psutil.Process) -> float:
    """0 for a process that has ended."""
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return 0.0


def test_large_documents_are_read_in_a_worker_with_the_same_result(service: Api) -> None:
    text = "x" * 200_000
    for content, content_type in (
        (json.dumps(a_spec(config={"text": text})), "application/json"),
        (f"# {text}\n{json.dumps(a_spec())}", "application/yaml"),
    ):
        service.post("/v1/experiments", 201, content=content, headers={"Content-Type": content_type})
    refused = service.post("/v1/experiments", 422, json=a_spec(config={"text": text, "nul": "\0"}))
    assert [error["path"] for error in refused["errors"]] == ["config.nul"]
    refused = service.post("/v1/experiments", 400, content=f"a: *b # {text}")
    assert refused["type"] == "urn:paceline:error:bad-request"


@on_sqlite
def test_large_packages_are_checked_in_a_worker_with_the_same_result(service: Api) -> None:
    noise = os.urandom(1_100_000)
    good = archive({"train.py": b"", "weights.bin": noise})
    assert service.post("/v1/packages", 201, content=good)["files"] == ["train.py", "weights.bin"]
    refused = service.post("/v1/packages", 422, content=archive({"../train.py": b"", "weights.bin": noise}))
    assert [error["path"] for error in refused["errors"]] == ["package.../train.py"]
    form = {"spec": ("spec.json", json.dumps(a_spec())), "code": ("code.zip", good)}
    created = service.post("/v1/experiments", 201, files=form)
    assert created["spec"]["trainer"]["package"].startswith("sha256:")


@on_sqlite
@pytest.mark.parametrize(
    ("compute_seconds", "status", "problem"), [(600, 422, "invalid"), (0.05, 503, "too-much-work")]
)
def test_large_code_is_checked_in_a_worker(
    settings: Settings, compute_seconds: float, status: int, problem: str
) -> None:
    """Parsing takes seconds, in which no other thread of the process runs."""
    with running(replace(settings, compute_seconds=compute_seconds)) as service:
        package = service.post("/v1/packages", 201, params={"filename": "train.py"}, content=b"a\n" * 480_000)["id"]
        trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": package}
        refused = service.post("/v1/experiments", status, json=a_spec(trainer=trainer))
    assert refused["type"] == f"urn:paceline:error:{problem}"


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return buffer.getvalue()
