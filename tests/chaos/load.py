"""The work that goes on meanwhile: of each kind of experiment one, and the next as soon as it has ended."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.cli.code_archive import pack
from tests.chaos.experiments import Planned

USER_CODE = Path(__file__).parent / "user_code"
PATIENCE_SECONDS = 60.0
ENDED = {"completed", "failed", "stopped"}

Series = Callable[[int], Planned]
"""The n-th experiment of a kind."""


class Load:
    """Submits through whichever service answers. Every experiment ever submitted is in `planned`, by its id."""

    def __init__(self, urls: Sequence[str], series: Sequence[Series]) -> None:
        self._http = httpx.Client(timeout=10, trust_env=False)
        self._urls = urls
        self._series = series
        self._counts = [0] * len(series)
        self._running: list[str | None] = [None] * len(series)
        self.planned: dict[str, Planned] = {}

    def begin(self) -> None:
        for place in range(len(self._series)):
            self._submit(place)

    def look(self, *, go_on: bool) -> bool:
        """Whether anything runs still. With `go_on`, what has ended is followed by the next of its kind."""
        for place, experiment in enumerate(self._running):
            if experiment is not None and self._has_ended(experiment):
                self._running[place] = None
                if go_on:
                    self._submit(place)
        return any(self._running)

    def close(self) -> None:
        self._http.close()

    def _submit(self, place: int) -> None:
        planned = self._series[place](self._counts[place])
        self._counts[place] += 1
        code = pack(USER_CODE)
        package = self._call("POST", "/v1/packages", params={"filename": code.filename}, content=code.content)
        spec = {**planned.spec, "trainer": {**planned.spec["trainer"], "package": package["id"]}}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        created = self._call("POST", "/v1/experiments", json=spec, headers=key)
        self._running[place] = created["id"]
        self.planned[created["id"]] = planned

    def _has_ended(self, experiment: str) -> bool:
        try:
            return bool(self._call("GET", f"/v1/experiments/{experiment}", patience=0)["status"] in ENDED)
        except TimeoutError:
            return False

    def _call(self, method: str, path: str, *, patience: float = PATIENCE_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Again and again, as clients do, until a service answers; raise for what it refuses."""
        why = ""
        for url in self._rounds(patience):
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
        raise TimeoutError(f"no service answered {method} {path} within {patience:g} s: {why}")

    def _rounds(self, patience: float) -> Iterator[str]:
        deadline = time.monotonic() + patience
        while True:
            yield from self._urls
            if time.monotonic() > deadline:
                return
            time.sleep(0.2)
