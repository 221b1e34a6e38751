"""The load: one experiment of each kind at a time, and the next one as soon as it has ended."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.cli.code_archive import pack
from tests.chaos.experiments import Planned
from tests.chaos.service_caller import ServiceCaller

USER_CODE = Path(__file__).parent / "user_code"
ENDED = {"completed", "failed", "stopped"}

Series = Callable[[int], Planned]
"""The n-th experiment of a kind."""


class Load:
    """Submits experiments to any service that answers. `planned` has all of them by id."""

    def __init__(self, urls: Sequence[str], series: Sequence[Series]) -> None:
        self._services = ServiceCaller(urls)
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
        self._services.close()

    def _submit(self, index: int) -> None:
        planned = self._series[index](self._counts[index])
        self._counts[index] += 1
        key = {"Idempotency-Key": uuid.uuid4().hex}
        created = self._call("POST", "/v1/experiments", json=self._with_code(planned.spec), headers=key)
        self._running[index] = created["id"]
        self.planned[created["id"]] = planned

    def _with_code(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if spec["trainer"].get("kind") == "external":
            return dict(spec)
        code = pack(USER_CODE)
        package = self._call("POST", "/v1/packages", params={"filename": code.filename}, content=code.content)
        return {**spec, "trainer": {**spec["trainer"], "package": package["id"]}}

    def _has_ended(self, experiment: str) -> bool:
        try:
            return bool(self._call("GET", f"/v1/experiments/{experiment}", timeout=0)["status"] in ENDED)
        except TimeoutError:
            return False

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        body: dict[str, Any] = self._services.call(method, path, **arguments).raise_for_status().json()
        return body
