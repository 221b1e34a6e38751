"""The load: one experiment of each kind at a time, and the next one as soon as it has ended."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.cli.code_archive import pack
from tests.chaos.experiments import Planned

USER_CODE = Path(__file__).parent / "user_code"
TIMEOUT_SECONDS = 60.0
ENDED = {"completed", "failed", "stopped"}

Series = Callable[[int], Planned]
"""The n-th experiment of a kind."""


class Load:
    """Submits experiments to any service that answers. `planned` has all of them by id."""

    def __init__(self, urls: Sequence[str], series: Sequence[Series]) -> None:
        self._http = httpx.Client(timeout=10, trust_env=False)
        self._urls = urls
        self._series = series
        self._counts = [0] * len(series)
        self._running: list[str | None] = [None] * len(series)
        self.planned: dict[str, Planned] = {}

    def begin(self) -> None:
        for index in range(len(self._series)):
            self._submit(index)

    def poll(self, *, submit_next: bool) -> bool:
        """Return whether any experiment still runs. With `submit_next`, replace the ended ones."""
        for index, experiment in enumerate(self._running):
            if experiment is not None and self._has_ended(experiment):
                self._running[index] = None
                if submit_next:
                    self._submit(index)
        return any(self._running)

    def close(self) -> None:
        self._http.close()

    def _submit(self, index: int) -> None:
        planned = self._series[index](self._counts[index])
        self._counts[index] += 1
        code = pack(USER_CODE)
        package = self._call("POST", "/v1/packages", params={"filename": code.filename}, content=code.content)
        spec = {**planned.spec, "trainer": {**planned.spec["trainer"], "package": package["id"]}}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        created = self._call("POST", "/v1/experiments", json=spec, headers=key)
        self._running[index] = created["id"]
        self.planned[created["id"]] = planned

    def _has_ended(self, experiment: str) -> bool:
        try:
            return bool(self._call("GET", f"/v1/experiments/{experiment}", timeout=0)["status"] in ENDED)
        except TimeoutError:
            return False

    def _call(self, method: str, path: str, *, timeout: float = TIMEOUT_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Retry until a service answers; raise HTTPStatusError for what it refuses, TimeoutError when none answers."""
        why = ""
        for url in self._urls_until(timeout):
            try:
                response = self._http.request(method, url + path, **arguments)
            except httpx.TransportError as error:
                why = repr(error)
                continue
            why = response.text
            if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                response.raise_for_status()
                body: dict[str, Any] = response.json()
                return body
        raise TimeoutError(f"no service answered {method} {path} within {timeout:g} s: {why}")

    def _urls_until(self, timeout: float) -> Iterator[str]:
        deadline = time.monotonic() + timeout
        while True:
            yield from self._urls
            if time.monotonic() > deadline:
                return
            time.sleep(0.2)
