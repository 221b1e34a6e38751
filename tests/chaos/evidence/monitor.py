"""Samples the state of the services during the run, as evidence for recovery times."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

INTERVAL_SECONDS = 0.25
MLFLOW = "mlflow"


@dataclass(frozen=True)
class Sample:
    """One sample of a service, or of MLflow. `seen`: when each agent was last seen; `lag`: events not yet mirrored."""

    at: float
    service: str
    ready: bool
    lag: int | None
    seen: dict[str, float]


class Monitor(threading.Thread):
    """Samples each service (`urls` by name) and MLflow until `end` is called."""

    def __init__(self, urls: Mapping[str, str], mlflow_url: str) -> None:
        super().__init__(name="chaos-watch", daemon=True)
        self.samples: list[Sample] = []
        self._urls = urls
        self._mlflow_url = mlflow_url
        self._over = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=2, trust_env=False) as http:
            while not self._over.wait(INTERVAL_SECONDS):
                samples = [_sample_service(http, name, url) for name, url in self._urls.items()]
                self.samples += [*samples, _sample_mlflow(http, self._mlflow_url)]

    def lag(self) -> int | None:
        """Return the newest count of events not yet mirrored; None when a service does not answer."""
        newest = {sample.service: sample.lag for sample in self.samples[-len(self._urls) - 1 :]}
        lags = [newest.get(service) for service in self._urls]
        return None if None in lags else max(lag or 0 for lag in lags)

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def monitoring(urls: Mapping[str, str], mlflow_url: str) -> Iterator[Monitor]:
    monitor = Monitor(urls, mlflow_url)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.end()


def _sample_mlflow(http: httpx.Client, url: str) -> Sample:
    at = time.time()
    try:
        return Sample(at, MLFLOW, http.get(f"{url}/health").is_success, lag=None, seen={})
    except httpx.TransportError:
        return Sample(at, MLFLOW, ready=False, lag=None, seen={})


def _sample_service(http: httpx.Client, service: str, url: str) -> Sample:
    at = time.time()
    try:
        ready = http.get(f"{url}/readyz")
        agents = http.get(f"{url}/v1/agents") if ready.is_success else None
    except httpx.TransportError:
        return Sample(at, service, ready=False, lag=None, seen={})
    found: list[dict[str, Any]] = agents.json()["items"] if agents is not None and agents.is_success else []
    seen = {one["name"]: datetime.fromisoformat(one["last_seen_at"]).timestamp() for one in found}
    state = ready.json() if ready.headers.get("content-type", "").startswith("application/json") else {}
    return Sample(at, service, ready.is_success, state.get("mlflow_lag"), seen)
