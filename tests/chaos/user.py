"""A user who steers an experiment while everything is killed, and whose calls are recorded."""

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tests.chaos.evidence.calls import Call
from tests.chaos.experiments import Planned, scratch, steered
from tests.chaos.service_caller import ServiceCaller
from tests.chaos.submission import submit

PAUSE_SECONDS = (0.8, 2.5)
PATIENCE = 0.7
"""The share of calls that are repeated until there is an answer. The others are given up."""
MAX_QUEUED = 6
"""With so many trials in the queue the user enqueues no more: on a busy machine the run would hardly end."""


class User:
    """Pauses, resumes, changes, enqueues, stops and retries; and submits, cancels and deletes experiments."""

    def __init__(self, urls: Sequence[str], journal: str, seed: int) -> None:
        self._thread = threading.Thread(target=self._run, name="chaos-user", daemon=True)
        self._services = ServiceCaller(urls)
        self._journal, self._seed = journal, seed
        self._random = random.Random(seed)  # noqa: S311 - it must be reproducible
        self._over, self._given_up = threading.Event(), threading.Event()
        self._own = ""
        self._scratches: dict[str, bool] = {}
        self._turn = 0
        self.calls: list[Call] = []
        self.planned: dict[str, Planned] = {}

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Let the user end when the experiments have ended."""
        self._over.set()

    def is_busy(self) -> bool:
        """Until the steered experiment has ended, too."""
        return self._thread.is_alive()

    def give_up(self) -> None:
        """Do not wait for the steered experiment any longer."""
        self._over.set()
        self._given_up.set()

    def _run(self) -> None:
        planned = steered("steered-0", self._journal, seed=self._seed)
        self._own = submit(self._services, planned.spec)
        self.planned[self._own] = planned
        while not self._over.wait(self._random.uniform(*PAUSE_SECONDS)):
            acts = [self._pause, self._resume, self._resume, self._change, self._enqueue, self._stop, self._retry]
            with contextlib.suppress(TimeoutError):
                self._random.choice([*acts, self._throw_away])()
        self._close()
        self._services.close()

    def _pause(self) -> None:
        self._post("pause", self._own, f"/v1/experiments/{self._own}/pause")

    def _resume(self, *, patient: bool = False) -> None:
        self._post("resume", self._own, f"/v1/experiments/{self._own}/resume", patient=patient)

    def _change(self, max_trials: int | None = None) -> None:
        """Change two limits and a tag in one call. The tag shows which call it was."""
        self._turn += 1
        limits = {"max_trials": max_trials or 100 + self._turn, "parallelism": self._random.choice([1, 2])}
        change = {"limits": limits, "tags": {"turn": str(self._turn)}}
        self._call("change", self._own, "PATCH", f"/v1/experiments/{self._own}", change, patient=max_trials is not None)

    def _enqueue(self) -> None:
        """Two configurations in one call, which is made twice."""
        if len(self._trials("queued")) > MAX_QUEUED:
            return
        configurations = [{"params": {"x": self._random.random(), "width": width}} for width in (1, 2)]
        key = {"Idempotency-Key": uuid.uuid4().hex}
        path = f"/v1/experiments/{self._own}/trials"
        for what in ("enqueue", "enqueue again"):
            self._call(what, self._own, "POST", path, configurations, headers=key)

    def _stop(self) -> None:
        trial = self._some_trial("running")
        if trial:
            self._post("stop", trial, f"/v1/trials/{trial}/stop")

    def _retry(self) -> None:
        trial = self._some_trial("stopped")
        if trial:
            self._post("retry", trial, f"/v1/trials/{trial}/retry")

    def _throw_away(self, *, patient: bool = False) -> None:
        """Submit a small experiment; cancel it the next time, and delete it the time after that."""
        if not self._scratches:
            planned = scratch(f"scratch-{self._turn}-{len(self.calls)}", self._journal, seed=self._seed)
            self._scratches[submit(self._services, planned.spec)] = False
            return
        experiment, is_cancelled = next(iter(self._scratches.items()))
        path = f"/v1/experiments/{experiment}"
        if not is_cancelled:
            self._scratches[experiment] = self._post("cancel", experiment, f"{path}/cancel", patient=patient).accepted
        else:
            answer = self._call("delete", experiment, "DELETE", path, patient=patient)
            if answer.accepted or answer.status == httpx.codes.NOT_FOUND:
                del self._scratches[experiment]

    def _close(self) -> None:
        """Throw away what is left, and let the steered experiment end by its limit. A late call may pause it again."""
        while self._scratches and not self._given_up.is_set():
            self._throw_away(patient=True)
            time.sleep(PAUSE_SECONDS[0])
        self._change(max_trials=max(sum(self._state()["counts"].values()), 1))
        while (status := self._state()["status"]) in {"running", "paused"} and not self._given_up.is_set():
            if status == "paused":
                self._resume(patient=True)
            time.sleep(PAUSE_SECONDS[0])

    def _state(self) -> dict[str, Any]:
        body: dict[str, Any] = self._services.call("GET", f"/v1/experiments/{self._own}").raise_for_status().json()
        return body

    def _some_trial(self, status: str) -> str | None:
        found = self._trials(status)
        return self._random.choice(found) if found else None

    def _trials(self, status: str) -> list[str]:
        """Return the ids of its trials with this status; [] when no service answers."""
        try:
            path = f"/v1/experiments/{self._own}/trials"
            answer = self._services.call("GET", path, timeout=0, params={"status": status})
        except TimeoutError:
            return []
        return [one["id"] for one in answer.raise_for_status().json()["items"]]

    def _post(self, what: str, of: str, path: str, *, patient: bool = False) -> Call:
        return self._call(what, of, "POST", path, patient=patient)

    def _call(
        self,
        what: str,
        of: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        patient: bool = False,
    ) -> Call:
        """Make a call and record it."""
        is_patient = patient or self._random.random() < PATIENCE
        at, lost = time.time(), self._services.lost_count
        arguments = ({"headers": dict(headers)} if headers else {}) | ({} if body is None else {"json": body})
        answer: httpx.Response | None = None
        with contextlib.suppress(TimeoutError):
            answer = self._services.call(method, path, timeout=60 if is_patient else 0, **arguments)
        call = Call(
            what=what,
            of=of,
            at=at,
            answered_at=time.time(),
            status=answer.status_code if answer is not None else None,
            lost_count=self._services.lost_count - lost,
            sent={"body": body},
            created=_created(answer),
        )
        self.calls.append(call)
        return call


def _created(answer: httpx.Response | None) -> tuple[str, ...]:
    if answer is None or answer.status_code != httpx.codes.CREATED:
        return ()
    return tuple(one["id"] for one in answer.json()["items"])
