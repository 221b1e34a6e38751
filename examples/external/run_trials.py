"""Runs trials of an experiment of `kind: external` until it has ended. Start as many of these programs as you like.

python examples/external/run_trials.py external
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

URL = os.environ.get("PACELINE_URL", "http://127.0.0.1:8000")
NO_TRIAL_NOW, CONFLICT = 204, 409


def losses(config: dict[str, Any]) -> Iterator[float]:
    """The training: gradient descent on x^2 from 1."""
    x, velocity = 1.0, 0.0
    for _ in range(config["steps"]):
        velocity = config["momentum"] * velocity - config["lr"] * 2 * x
        x += velocity
        yield x * x


@contextmanager
def heartbeats(service: httpx.Client, trial: str, lease: dict[str, Any]) -> Iterator[None]:
    """Keep the lease while a step takes longer than it. A trial whose lease has expired is given to another program."""
    ended = threading.Event()

    def extend() -> None:
        while not ended.wait(lease["seconds"] / 3):
            with suppress(httpx.HTTPError):  # the service may be away for a moment
                service.post(f"/v1/trials/{trial}/heartbeat", headers=bearer(lease["token"]))

    thread = threading.Thread(target=extend, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def run(service: httpx.Client, assignment: dict[str, Any]) -> None:
    """Train, report each step, leave when the service says so, and report the outcome."""
    trial, lease = assignment["trial"], assignment["lease"]
    outcome: dict[str, Any] = {"outcome": "completed"}
    with heartbeats(service, trial, lease):
        try:
            for sequence, loss in enumerate(losses(assignment["config"])):
                reports = {"reports": [{"sequence": sequence, "metrics": {"loss": loss}}]}
                answer = service.post(f"/v1/trials/{trial}/reports", json=reports, headers=bearer(lease["token"]))
                if answer.status_code == CONFLICT:  # the lease has expired: another program has the trial
                    return
                if answer.raise_for_status().json()["decision"] != "continue":
                    outcome = {"outcome": "stopped"}
                    break
        except ArithmeticError as error:
            outcome = {"outcome": "failed", "error": {"kind": "user_error", "message": repr(error)}}
    service.post(f"/v1/trials/{trial}/finish", json=outcome, headers=bearer(lease["token"])).raise_for_status()


def main(experiment: str) -> None:
    token = os.environ.get("PACELINE_TOKEN")
    with httpx.Client(base_url=URL, headers=bearer(token) if token else {}, timeout=60) as service:
        while True:
            asked = service.post(f"/v1/experiments/{experiment}/ask")
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
