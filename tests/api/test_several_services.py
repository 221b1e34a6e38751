"""Several service processes on one PostgreSQL are one service: the same limits, the same history, the same answers."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.stack.ports import free_port
from tests.conftest import a_spec

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)]

MAX_TRIALS, PARALLELISM, ASKERS = 40, 3, 9


@contextmanager
def served(database_url: str, data_dir: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    port = free_port()
    env = os.environ | {"PACELINE_DATABASE_URL": database_url, "PACELINE_DATA_DIR": str(data_dir)}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        try:
            while not answers(client):
                assert process.poll() is None
            yield client, process
        finally:
            process.kill()
            process.wait()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def services(database_url: str, tmp_path: Path) -> Iterator[list[tuple[httpx.Client, subprocess.Popen[bytes]]]]:
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        started = [served(database_url, tmp_path) for _ in range(3)]
        yield list(pool.map(stack.enter_context, started))


def test_several_processes_keep_the_limits_even_if_one_is_killed(services: Any) -> None:
    limits = {"max_trials": MAX_TRIALS, "parallelism": PARALLELISM}
    clients = [client for client, _ in services]
    name = clients[0].post("/v1/experiments", json=a_spec(limits=limits)).raise_for_status().json()["name"]
    third_killed = threading.Event()

    def run_trials(number: int) -> list[str]:
        """Train until the experiment has ended; a worker whose service is gone calls another one."""
        mine, done = clients[number % 3], list[str]()
        while True:
            try:
                asked = mine.post(f"/v1/experiments/{name}/ask", headers={"Idempotency-Key": f"{number}-{len(done)}"})
                if asked.status_code == 409:
                    return done
                if asked.status_code == 200:
                    done.append(run_one(mine, asked.json()))
            except httpx.TransportError:
                assert third_killed.is_set()
                mine = clients[number % 2]
            if len(done) == 3 and number == 0 and not third_killed.is_set():
                third_killed.set()
                services[2][1].send_signal(signal.SIGKILL)

    with ThreadPoolExecutor(ASKERS) as pool:
        trials = [trial for done in pool.map(run_trials, range(ASKERS)) for trial in done]
    assert third_killed.is_set()
    events = clients[1].get(f"/v1/experiments/{name}/events", params={"follow": False, "limit": 1000}).json()["items"]
    experiment = clients[1].get(f"/v1/experiments/{name}").json()
    assert (experiment["status"], experiment["counts"]["completed"]) == ("completed", MAX_TRIALS)
    assert sorted(set(trials)) == sorted({event["trial"] for event in events if event["trial"]})
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert most_at_once(events) == PARALLELISM


def run_one(client: httpx.Client, assignment: dict[str, Any]) -> str:
    """Report and finish; a call whose answer got lost is repeated."""
    path, lease = f"/v1/trials/{assignment['trial']}", {"Authorization": f"Bearer {assignment['lease']['token']}"}
    report = {"reports": [{"sequence": 0, "metrics": {"accuracy": assignment["params"]["lr"]}}]}
    client.post(f"{path}/reports", json=report, headers=lease).raise_for_status()
    client.post(f"{path}/finish", json={"outcome": "completed"}, headers=lease).raise_for_status()
    return str(assignment["trial"])


def most_at_once(events: list[dict[str, Any]]) -> int:
    running, most = set(), 0
    for event in events:
        if event["kind"] == "trial.running":
            running.add(event["trial"])
        elif event["kind"].startswith("trial."):
            running.discard(event["trial"])
        most = max(most, len(running))
    return most


def test_every_process_proposes_from_the_whole_history(services: Any) -> None:
    """The same search with the same seed, once at one process and once at all processes in turn."""
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
