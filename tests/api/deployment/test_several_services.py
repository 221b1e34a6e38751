"""Several service processes on one PostgreSQL are one service: the same limits, the same history, the same answers."""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.stack.ports import free_port
from tests.api.deployment.service_processes import served
from tests.conftest import a_spec
from tests.databases import postgres_database
from tests.timeouts import wait_until
from tests.trainer.service_listener import listener, nothing
from trainer.client.addresses import ServiceAddresses
from trainer.client.heartbeat import HeartbeatThread
from trainer.client.http import ServiceClient

pytestmark = pytest.mark.slow

MAX_TRIALS, PARALLELISM, ASKERS, BEFORE_THE_KILL = 40, 3, 9, 9


class OneAway:
    """Two services on one database; the first one is away again and again, in either way."""

    def __init__(self, database_url: str, data_dir: Path, stack: ExitStack) -> None:
        self._ports = free_port(), free_port()
        self._start = partial(served, database_url, data_dir)
        self._stack = stack
        with ThreadPoolExecutor(2) as pool:
            (self.first, self._process), (self.second, _) = pool.map(self._started, self._ports)

    def _started(self, port: int) -> tuple[httpx.Client, subprocess.Popen[bytes]]:
        return self._stack.enter_context(self._start(port))

    @contextmanager
    def first_away(self, how: signal.Signals) -> Iterator[None]:
        """The first service is away in the block, and for longer than a lease."""
        self._process.send_signal(how)
        away_until = time.monotonic() + LEASE_SECONDS + 1
        yield
        time.sleep(max(0, away_until - time.monotonic()))  # the length of the outage is what is tried
        if how is signal.SIGSTOP:
            self._process.send_signal(signal.SIGCONT)
        else:
            self.first, self._process = self._started(self._ports[0])


LEASE_SECONDS = 8.0
"""A third of it passes between two heartbeats, and a busy machine may keep one waiting for seconds."""


@pytest.fixture
def one_away(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneAway]:
    monkeypatch.setenv("PACELINE_LEASE_SECONDS", str(LEASE_SECONDS))
    with ExitStack() as stack:
        yield OneAway(database_url, tmp_path, stack)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_no_attempt_is_lost_while_one_of_two_services_is_away(
    one_away: OneAway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three holders: one was given both addresses, one learns of the other, one knows only that of the first service.

    A fourth one dies before each outage, and loses its trial while the first service is away: the second one still
    rescues.
    """
    first, second = str(one_away.first.base_url), str(one_away.second.base_url)
    name = one_away.first.post("/v1/experiments", json=a_spec(limits={"parallelism": 4})).raise_for_status()
    ask = f"/v1/experiments/{name.json()['name']}/ask"
    given = [one_away.first.post(ask).raise_for_status().json() for _ in range(3)]
    deaf, orders = ServiceAddresses(first), queue.Queue[Any]()
    monkeypatch.setattr(deaf, "announce", nothing)
    known = [ServiceAddresses(f"{first},{second}"), ServiceAddresses(first), deaf]
    beats = [
        HeartbeatThread(
            ServiceClient(to, one["lease"]["token"]),
            one["trial"],
            LEASE_SECONDS,
            listener(on_lease_lost=partial(orders.put, one)),
        )
        for to, one in zip(known, given, strict=True)
    ]
    for beat in beats:
        beat.start()
    wait_until(lambda: known[1].has_others)
    for how in (signal.SIGSTOP, signal.SIGKILL):
        dead = one_away.second.post(ask).raise_for_status().json()
        with one_away.first_away(how):
            wait_until(lambda dead=dead: shown(one_away.second, dead)["status"] == "queued")  # type: ignore[misc]
        report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.1}}]}
        for to, one in zip(known, given, strict=True):
            assert ServiceClient(to, one["lease"]["token"]).post(f"/v1/trials/{one['trial']}/reports", report)
    seen = [shown(one_away.second, one) for one in given]
    assert [(one["status"], one["attempt_count"]) for one in seen] == [("running", 1)] * 3
    assert orders.empty()
    for beat in beats:
        beat.close()


def shown(client: httpx.Client, assignment: dict[str, Any]) -> dict[str, Any]:
    trial: dict[str, Any] = client.get(f"/v1/trials/{assignment['trial']}").raise_for_status().json()
    return trial


@pytest.fixture(scope="module")
def services(
    postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[httpx.Client, subprocess.Popen[bytes]]]]:
    """Three, for the rest of this file: starting them takes longer than a test with them. The last test kills one."""
    with postgres_database(postgres) as url, ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        data_dir = tmp_path_factory.mktemp("services")
        yield list(pool.map(lambda _: stack.enter_context(served(url, data_dir)), range(3)))


def test_every_process_proposes_from_the_whole_history(services: Any) -> None:
    """One search with one seed runs twice: at one process, and at all processes in turn."""
    clients = [client for client, _ in services]
    alone, in_turn = search(clients[:1]), search(clients)
    assert alone == in_turn
    assert {status for _, status in alone} == {"completed", "pruned"}


def search(clients: list[httpx.Client]) -> list[tuple[dict[str, float], str]]:
    turns = cycle(clients)
    spec = a_spec(search={"sampler": "tpe", "seed": 3}, early_stopping={"rule": "asha", "reduction_factor": 2})
    name = next(turns).post("/v1/experiments", json=spec).raise_for_status().json()["name"]
    for _ in range(spec["limits"]["max_trials"]):
        assignment = next(turns).post(f"/v1/experiments/{name}/ask").raise_for_status().json()
        path, lease = f"/v1/trials/{assignment['trial']}", {"Authorization": f"Bearer {assignment['lease']['token']}"}
        for step in range(4):
            report = {"sequence": step, "metrics": {"accuracy": assignment["params"]["lr"] * (step + 1)}}
            answer = next(turns).post(f"{path}/reports", json={"reports": [report]}, headers=lease).raise_for_status()
            if answer.json()["decision"] == "stop":
                break
        stopped = answer.json()["decision"] == "stop"
        next(turns).post(
            f"{path}/finish", json={"outcome": "stopped" if stopped else "completed"}, headers=lease
        ).raise_for_status()
    trials = next(turns).get(f"/v1/experiments/{name}/trials").json()["items"]
    return [(trial["params"], trial["status"]) for trial in sorted(trials, key=lambda trial: trial["number"])]


def test_several_processes_keep_the_limits_even_if_one_is_killed(services: Any) -> None:
    limits = {"max_trials": MAX_TRIALS, "parallelism": PARALLELISM}
    clients = [client for client, _ in services]
    name = clients[0].post("/v1/experiments", json=a_spec(limits=limits)).raise_for_status().json()["name"]
    third_killed, finished = threading.Event(), count(1)

    def run_trials(number: int) -> set[str]:
        """Train until the experiment has ended; a worker whose service is gone calls another one."""
        mine, given, keys = clients[number % 3], set[str](), count()
        key = next(keys)
        while True:
            try:
                asked = mine.post(f"/v1/experiments/{name}/ask", headers={"Idempotency-Key": f"{number}-{key}"})
                if asked.status_code == 409 and "ask with a new key" in asked.text:  # the answer to `finish` got lost
                    key = next(keys)
                elif asked.status_code == 409:
                    return given
                if asked.status_code == 200:
                    given.add(asked.json()["trial"])
                    run_one(mine, asked.json())
                    key = next(keys)
                    if next(finished) == BEFORE_THE_KILL:
                        third_killed.set()
                        services[2][1].send_signal(signal.SIGKILL)
            except httpx.TransportError:
                assert third_killed.is_set()
                mine = clients[number % 2]

    with ThreadPoolExecutor(ASKERS) as pool:
        trials = set[str]().union(*pool.map(run_trials, range(ASKERS)))
    assert third_killed.is_set()
    events = clients[1].get(f"/v1/experiments/{name}/events", params={"follow": False, "limit": 1000}).json()["items"]
    experiment = clients[1].get(f"/v1/experiments/{name}").json()
    assert (experiment["status"], experiment["counts"]["completed"]) == ("completed", MAX_TRIALS)
    assert trials == {event["trial"] for event in events if event["trial"]}
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert most_at_once(events) == PARALLELISM


def run_one(client: httpx.Client, assignment: dict[str, Any]) -> None:
    """Report and finish; a call whose answer got lost is repeated."""
    path, lease = f"/v1/trials/{assignment['trial']}", {"Authorization": f"Bearer {assignment['lease']['token']}"}
    report = {"reports": [{"sequence": 0, "metrics": {"accuracy": assignment["params"]["lr"]}}]}
    client.post(f"{path}/reports", json=report, headers=lease).raise_for_status()
    client.post(f"{path}/finish", json={"outcome": "completed"}, headers=lease).raise_for_status()


def most_at_once(events: list[dict[str, Any]]) -> int:
    running, most = set(), 0
    for event in events:
        if event["kind"] == "trial.running":
            running.add(event["trial"])
        elif event["kind"].startswith("trial."):
            running.discard(event["trial"])
        most = max(most, len(running))
    return most
