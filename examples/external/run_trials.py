"""Runs trials of an experiment of `kind: external` until it has ended. Start as many of these programs as you like.

python examples/external/run_trials.py external
"""

import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

URL = os.environ.get("PACELINE_URL", "http://127.0.0.1:8000")
NO_TRIAL_NOW, CONFLICT, SERVER_ERROR = 204, 409, 500


class TrialLost(Exception):
    """The lease has expired, so that another program has the trial, or the trial has been ended."""


def losses(config: dict[str, Any]) -> Iterator[float]:
    """The training: gradient descent on x^2 from 1."""
    x, velocity = 1.0, 0.0
    for _ in range(config["steps"]):
        velocity = config["momentum"] * velocity - config["lr"] * 2 * x
        x += velocity
        yield x * x


def call(service: httpx.Client, path: str, body: Any = None, **headers: str) -> httpx.Response:
    """Make the same call until the service answers it, however long it is away. It knows a call that it has had."""
    while True:
        try:
            answer = service.post(path, json=body, headers=headers)
        except httpx.TransportError as error:
            problem = repr(error)
        else:
            if answer.status_code < SERVER_ERROR:
                return answer
            problem = answer.text
        print(f"{path}: {problem}; trying again", file=sys.stderr)
        time.sleep(1)


def call_for(service: httpx.Client, assignment: dict[str, Any], what: str, body: Any) -> Any:
    """Make a call on the trial. Raises TrialLost."""
    answer = call(service, f"/v1/trials/{assignment['trial']}/{what}", body, **bearer(assignment["lease"]["token"]))
    if answer.status_code == CONFLICT:
        raise TrialLost(answer.text)
    return answer.raise_for_status().json()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def heartbeats(service: httpx.Client, assignment: dict[str, Any]) -> Iterator[None]:
    """Keep the lease while a step takes longer than it. A trial whose lease has expired is given to another program."""
    lease, ended = assignment["lease"], threading.Event()

    def extend() -> None:
        while not ended.wait(lease["seconds"] / 3):
            with suppress(httpx.HTTPError):  # the next heartbeat will do
                service.post(f"/v1/trials/{assignment['trial']}/heartbeat", headers=bearer(lease["token"]))

    thread = threading.Thread(target=extend, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def train(service: httpx.Client, assignment: dict[str, Any]) -> dict[str, Any]:
    """Report each step, and leave when the service says so; returns the outcome."""
    try:
        for sequence, loss in enumerate(losses(assignment["config"])):
            report = {"sequence": sequence, "metrics": {"loss": loss}}
            if call_for(service, assignment, "reports", {"reports": [report]})["decision"] != "continue":
                return {"outcome": "stopped"}
    except ArithmeticError as error:
        return {"outcome": "failed", "error": {"kind": "user_error", "message": repr(error)}}
    return {"outcome": "completed"}


def run(service: httpx.Client, assignment: dict[str, Any]) -> None:
    try:
        with heartbeats(service, assignment):
            outcome = train(service, assignment)
            call_for(service, assignment, "finish", outcome)
    except TrialLost as loss:
        print(f"{assignment['trial']} is given up: {loss}", file=sys.stderr)


def main(experiment: str) -> None:
    token = os.environ.get("PACELINE_TOKEN")
    with httpx.Client(base_url=URL, headers=bearer(token) if token else {}, timeout=60) as service:
        while True:
            # With the key, a repeated call gets the same trial, instead of one more that nothing would run.
            asked = call(service, f"/v1/experiments/{experiment}/ask", **{"Idempotency-Key": uuid.uuid4().hex})
            if asked.status_code == NO_TRIAL_NOW:  # all that may run at a time do, or the experiment is paused
                time.sleep(1)
            elif asked.status_code == CONFLICT and "experiment_status" in asked.json():  # it has ended
                return
            elif asked.is_error:
                sys.exit(asked.text)
            else:
                run(service, asked.json())


if __name__ == "__main__":
    main(sys.argv[1])
