"""A user's own program that runs trials without Ray: `python -m tests.chaos.external_client JOURNAL URL …`.

It asks for trials of the experiments with its tag, and journals what it does as the training functions do. It sends
some calls twice, as a client does that has lost an answer.
"""

import json
import os
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.experiments import EXTERNAL_TAG
from tests.chaos.service_caller import ServiceCaller
from tests.chaos.user_code.curves import loss

IDLE_SECONDS = 0.5
REPEATED_STEPS = 5
"""Every so many steps, the report is sent twice."""
FOREVER = 1e6


class LeaseLost(Exception):
    """The service refuses what this attempt says."""


class Journal:
    """The journal of an attempt, in the form of the training functions' journals."""

    def __init__(self, directory: Path, run: str) -> None:
        self._run = run
        name = f"{run.replace('/', '+')}+client+{os.getpid()}.jsonl"
        self._file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, did: str, step: int, **facts: Any) -> None:
        line = {"at": time.time(), "did": did, "step": step, "run": self._run, "rank": 0, "pid": os.getpid()}
        os.write(self._file, (json.dumps(line | facts) + "\n").encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class Client:
    def __init__(self, journals: Path, urls: Sequence[str]) -> None:
        self._journals = journals
        self._services = ServiceCaller(urls)

    def run(self) -> None:
        while True:
            assigned = [one for one in map(self._ask, self._experiments()) if one is not None]
            for assignment in assigned:
                self._train(assignment)
            if not assigned:
                time.sleep(IDLE_SECONDS)

    def _experiments(self) -> list[str]:
        answer = self._call("GET", "/v1/experiments", params={"status": "running", "tag": EXTERNAL_TAG})
        return [one["id"] for one in answer.raise_for_status().json()["items"]]

    def _ask(self, experiment: str) -> dict[str, Any] | None:
        """Ask with a key of its own, twice. Both answers must name the same attempt."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        answers = [self._call("POST", f"/v1/experiments/{experiment}/ask", headers=headers) for _ in range(2)]
        given: list[dict[str, Any]] = [one.json() for one in answers if one.status_code == httpx.codes.OK]
        if not given:
            return None
        journal = Journal(self._journals, given[0]["run_name"])
        if len({(one["trial"], one["attempt"]) for one in given}) > 1:
            journal.write("asked twice", 0, why=", ".join(one["run_name"] for one in given))
        journal.close()
        return given[0]

    def _train(self, assignment: Mapping[str, Any]) -> None:
        journal = Journal(self._journals, assignment["run_name"])
        try:
            journal.write("start", 0)
            self._steps(assignment, journal)
        except LeaseLost as refused:
            journal.write("left", -1, why=str(refused))
        finally:
            journal.close()

    def _steps(self, assignment: Mapping[str, Any], journal: Journal) -> None:
        config = {**assignment["config"], **assignment["params"]}
        for step in range(1, config["steps"] + 1):
            time.sleep(config["pause"])
            metrics = {"step": step, "loss": loss(config, step), "made": time.time()}
            journal.write("report", step, made=metrics["made"])
            report = {"sequence": step - 1, "step": step, "metrics": metrics}
            for _ in range(1 if step % REPEATED_STEPS else 2):
                answer = self._say(assignment, "reports", {"reports": [report]})
            journal.write("reported", step)
            if answer["decision"] != "continue":
                self._finish(assignment, journal, "stopped", step)
                return
        journal.write("end", config["steps"])
        self._finish(assignment, journal, "completed", config["steps"])

    def _finish(self, assignment: Mapping[str, Any], journal: Journal, outcome: str, step: int) -> None:
        for _ in range(2):
            self._say(assignment, "finish", {"outcome": outcome})
        journal.write("finished", step, why=outcome)

    def _say(self, assignment: Mapping[str, Any], what: str, message: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {assignment['lease']['token']}"}
        answer = self._call("POST", f"/v1/trials/{assignment['trial']}/{what}", headers=headers, json=message)
        if answer.status_code == httpx.codes.CONFLICT:
            raise LeaseLost(answer.text)
        body: dict[str, Any] = answer.raise_for_status().json()
        return body

    def _call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return self._services.call(method, path, timeout=FOREVER, **arguments)


if __name__ == "__main__":
    Client(Path(sys.argv[1]), sys.argv[2:]).run()
