"""The service is killed between a commit and its answer: callers repeat the call, and nothing is lost or done twice."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.deployment.service_processes import served
from tests.conftest import a_spec
from trainer.client.errors import ServiceUnreachable
from trainer.client.http import ServiceClient

pytestmark = pytest.mark.slow

MAX_TRIALS = 5
NODE = {"total": {"CPU": 8}, "free": {"CPU": 8}}
KEY = {"Idempotency-Key": "once"}
Send = Callable[[httpx.Client], httpx.Response]
Call = Callable[[], Any]


class Proxy:
    """Forwards requests to `port`, and the answers back; while `deaf` is set, it holds the answers back."""

    def __init__(self) -> None:
        self.port = 0
        self.deaf = False
        self.over = threading.Event()
        self._kept: list[bytearray] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    @property
    def kept(self) -> list[Any]:
        """Return the complete answers that it has held back."""
        split = [bytes(each).partition(b"\r\n\r\n") for each in self._kept]
        return [json.loads(body) for head, _, body in split if f"content-length: {len(body)}".encode() in head.lower()]

    @contextmanager
    def passing(self) -> Iterator["Proxy"]:
        thread = threading.Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown(socket.SHUT_RDWR)
            thread.join()
            self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as far:
            back = threading.Thread(target=self._answer, args=(far, near))
            back.start()
            with contextlib.suppress(OSError):
                while data := near.recv(65536):
                    far.sendall(data)
                far.shutdown(socket.SHUT_WR)
            back.join()

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        kept = bytearray()
        if self.deaf:
            self._kept.append(kept)
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                kept += data
                if not self.deaf:
                    near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def proxy(pool: ThreadPoolExecutor) -> Iterator[Proxy]:  # its callers end before the pool
    with Proxy().passing() as proxy:
        yield proxy


def anyones(proxy: Proxy, send: Send) -> Call:
    """Repeat a call until there is an answer, as callers do."""

    def persistently() -> Any:
        while not proxy.over.wait(0.05):
            with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=proxy.url, timeout=240) as client:
                return send(client).raise_for_status().json()
        return None

    return persistently


def holders(proxy: Proxy, assignment: dict[str, Any], verb: str, body: dict[str, Any]) -> Call:
    """Make a call, and repeat it, as slots do."""
    path, token = f"/v1/trials/{assignment['trial']}/{verb}", assignment["lease"]["token"]
    client = ServiceClient(proxy.url, token)

    def persistently() -> Any:
        while not proxy.over.wait(0.05):
            with contextlib.suppress(ServiceUnreachable):
                return client.post(path, body)
        return None

    return persistently


def calls_of_all_kinds(proxy: Proxy, client: httpx.Client, name: str) -> list[Call]:
    training, ending = (client.post(f"/v1/experiments/{name}/ask").json() for _ in range(2))
    report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}, "checkpoint": "/saved"}]}
    claim = {"request_id": "one", "nodes": [NODE]}
    return [
        anyones(proxy, lambda c: c.post("/v1/experiments", json=a_spec(name="new"), headers=KEY)),
        anyones(proxy, lambda c: c.post(f"/v1/experiments/{name}/trials", json={"params": {"lr": 0.25}}, headers=KEY)),
        anyones(proxy, lambda c: c.post(f"/v1/experiments/{name}/ask", headers=KEY)),
        anyones(proxy, lambda c: c.post("/v1/agents/here/claim", json=claim)),
        holders(proxy, training, "reports", report),
        holders(proxy, ending, "finish", {"outcome": "stopped", "next": True}),
    ]


def test_repeated_calls_get_the_answers_that_were_lost_with_the_service(
    database_url: str, tmp_path: Path, proxy: Proxy, pool: ThreadPoolExecutor
) -> None:
    limits = {"max_trials": MAX_TRIALS, "parallelism": MAX_TRIALS}
    # Otherwise `finish` gets no next trial while the agent's experiment waits for the claim.
    mine, agents = a_spec(limits=limits, priority=1), a_spec(trainer=TORCH)
    with served(database_url, tmp_path) as (client, process):
        for spec in (mine, agents):
            client.post("/v1/experiments", json=spec).raise_for_status()
        calls = calls_of_all_kinds(proxy, client, mine["name"])
        proxy.port, proxy.deaf = int(client.base_url.port or 0), True
        answers = [pool.submit(call) for call in calls]
        while len(set(map(without_times, proxy.kept))) < len(calls) and not proxy.over.wait(0.02):
            assert not any(answer.done() for answer in answers)
        process.kill()
    with served(database_url, tmp_path) as (client, _):
        proxy.port, proxy.deaf = int(client.base_url.port or 0), False
        found = [answer.result(240) for answer in answers]
        assert set(map(without_times, found)) == set(map(without_times, proxy.kept))
        assert len(client.get("/v1/experiments").json()["items"]) == 3
        (claimed,) = trials_of(client, agents["name"])
        assert claimed["attempt_count"] == 1
        run_the_rest(client, mine["name"], found)
        check(client, mine["name"])


TORCH = {"kind": "torch", "entrypoint": "a_module:train_fn"}


def without_times(answer: dict[str, Any]) -> str:
    """Return an answer without its times."""
    following = answer.get("next") or answer
    lease = following.get("lease", {}).get("token")
    return str([answer.get("id"), answer.get("decision"), following.get("trial"), lease])


def trials_of(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/experiments/{name}/trials").json()["items"]
    return found


def run_the_rest(client: httpx.Client, name: str, found: list[dict[str, Any]]) -> None:
    held = [one.get("next") or one for one in found]
    held = [one for one in held if one.get("experiment") == name]
    while (asked := client.post(f"/v1/experiments/{name}/ask")).status_code == 200:
        held.append(asked.json())
    for one in held:
        lease = {"Authorization": f"Bearer {one['lease']['token']}"}
        report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}}]}
        client.post(f"/v1/trials/{one['trial']}/reports", json=report, headers=lease).raise_for_status()
        client.post(f"/v1/trials/{one['trial']}/finish", json={"outcome": "completed"}, headers=lease)


def check(client: httpx.Client, name: str) -> None:
    """Check that each trial exists once and ran once, and that event numbers are unique."""
    trials = trials_of(client, name)
    assert sorted(trial["number"] for trial in trials) == list(range(MAX_TRIALS))
    assert [trial["attempt_count"] for trial in trials] == [1] * MAX_TRIALS
    assert sum(trial["origin"] == "enqueue" for trial in trials) == 1
    statuses = sorted(trial["status"] for trial in trials)
    assert statuses == ["completed"] * (MAX_TRIALS - 2) + ["running", "stopped"]
    (training,) = [trial for trial in trials if trial["status"] == "running"]
    for what in ("reports", "checkpoints"):
        assert len(client.get(f"/v1/trials/{training['id']}/{what}").json()["items"]) == 1
    events = client.get(f"/v1/experiments/{name}/events", params={"follow": False}).json()["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
