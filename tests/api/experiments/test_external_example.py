"""The example of a program that runs trials by itself."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from tests.conftest import Api
from tests.timeouts import PATIENCE_SECONDS

EXAMPLE = Path(__file__).parents[3] / "examples/external"

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_two_of_the_programs_run_all_trials_and_end_with_the_experiment(service: Api) -> None:
    spec = (EXAMPLE / "experiment.yaml").read_bytes()
    service.post("/v1/experiments", 201, content=spec, headers={"Content-Type": "application/yaml"})
    command = [sys.executable, str(EXAMPLE / "run_trials.py"), "external"]
    env = {**os.environ, "PACELINE_URL": str(service.http.base_url)}
    programs = [subprocess.Popen(command, env=env) for _ in range(2)]
    try:
        assert [program.wait(PATIENCE_SECONDS) for program in programs] == [0, 0]
    finally:
        for program in programs:
            program.kill()
    ended = service.get("/v1/experiments/external")
    assert ended["status"] == "completed"
    statuses = {trial["status"] for trial in service.get("/v1/experiments/external/trials")["items"]}
    assert statuses <= {"completed", "pruned"}
    assert ended["best"]["value"] < 0.1


class Faulty(BaseHTTPRequestHandler):
    """Passes calls on to the service, but the first ones of each kind with a fault."""

    faults: ClassVar[dict[str, list[str | None]]] = {
        "ask": ["loses the answer", "refuses"],
        "reports": ["refuses", "loses the answer"],
        "finish": ["loses the answer", "refuses", None, "has ended the trial"],
    }
    http: ClassVar[httpx.Client]
    counts: ClassVar[Counter[str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.path.rpartition("/")[2]
        fault = next(iter(self.faults.get(kind, [])[self.counts[kind] :]), None)
        self.counts[kind] += 1
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        if fault == "has ended the trial":
            self.http.post(self.path, json={"outcome": "stopped"}, headers={"Authorization": headers["Authorization"]})
        if fault == "refuses":
            self._answer(503, b"{}")
            return
        answer = self.http.post(self.path, content=body, headers=headers)
        if fault != "loses the answer":
            self._answer(answer.status_code, answer.content)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keeps the calls out of the tests' output."""


@contextmanager
def faulty(service: Api) -> Iterator[str]:
    handler = type("Handler", (Faulty,), {"http": service.http, "counts": Counter()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_it_goes_on_after_calls_without_an_answer_and_gives_up_a_trial_that_it_has_lost(service: Api) -> None:
    spec = (EXAMPLE / "experiment.yaml").read_bytes()
    service.post("/v1/experiments", 201, content=spec, headers={"Content-Type": "application/yaml"})
    command = [sys.executable, str(EXAMPLE / "run_trials.py"), "external"]
    with faulty(service) as url:
        env = {**os.environ, "PACELINE_URL": url}
        ended = subprocess.run(
            command, env=env, timeout=PATIENCE_SECONDS, check=False, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("trying again") == 6
    assert ended.stderr.count("is given up") == 1
    trials = service.get("/v1/experiments/external/trials")["items"]
    assert {trial["attempt_count"] for trial in trials} == {1}
    assert [trial["status"] for trial in trials].count("stopped") == 1
    whole = [trial["id"] for trial in trials if trial["status"] == "completed"]
    assert {len(service.get(f"/v1/trials/{one}/reports")["items"]) for one in whole} == {20}
