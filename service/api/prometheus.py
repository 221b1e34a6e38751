"""`/metrics` in Prometheus' format: the calls of this process, and the state that all service processes share."""

import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from service.api.http.routes import Route
from service.runtime.context import Context
from service.store import mirrors
from service.store import prometheus_counts as counts
from service.store.agents import storage_errors
from service.store.checkpoints import checkpoint_deletions
from service.store.sql.database import database_now

router = APIRouter(tags=["health"], route_class=Route)


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
def get_metrics(request: Request) -> Response:
    """Counts and gauges for Prometheus; no names of experiments, no parameters."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class HealthChecked(Protocol):
    """A background loop."""

    name: str

    def health(self) -> dict[str, Any]: ...


class StateCollector(Collector):
    """Reads the state from the database at each scrape, so that every service process exports the same."""

    def __init__(self, context: Context, loops: Sequence[HealthChecked]) -> None:
        self._context = context
        self._loops = loops

    def describe(self) -> list[GaugeMetricFamily]:
        """Empty, so that registering the collector does not query the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        loops = {loop.name: float(loop.health()["ok"]) for loop in self._loops}
        yield _gauge("loop_ok", "1 while the background loop works", "loop", loops)
        try:
            with self._context.database.read() as session:
                stored = list(self._stored(session))
        except SQLAlchemyError:
            stored = []
        yield _plain("database_up", "1 while the database answers", float(bool(stored)))
        free = shutil.disk_usage(self._context.settings.data_dir).free
        yield _plain("data_dir_free_bytes", "Free space where packages, logs and an SQLite database are kept", free)
        yield from stored

    def _stored(self, session: Session) -> Iterator[GaugeMetricFamily]:
        now = database_now(session)
        yield _gauge("experiments", "Experiments by status", "status", counts.experiments(session))
        yield _gauge("live_trials", "Trials of live experiments by status", "status", counts.live_trials(session))
        yield _plain("leases", "Running attempts", counts.running_attempts(session))
        yield _plain("agents_connected", "Agents that asked for work lately", counts.connected_agents(session, now))
        away = sum(error is not None for error in storage_errors(session, now).values())
        yield _plain("agents_without_storage", "Connected agents that cannot write to the storage", away)
        deletions = checkpoint_deletions.count_deletions(session)
        yield _plain("pending_deletions", "Directories that agents are to delete", deletions)
        yield _plain("checkpoint_bytes", "Bytes of all checkpoints, as far as known", counts.checkpoint_bytes(session))
        if self._context.settings.mlflow_uri is not None:
            oldest = mirrors.oldest_waiting(session)
            yield _plain("mirror_lag_events", "Events that are not mirrored to MLflow yet", mirrors.lag(session))
            seconds = (now - oldest).total_seconds() if oldest else 0.0
            yield _plain("mirror_lag_seconds", "Age of the oldest event that is not mirrored to MLflow yet", seconds)


def _gauge(name: str, help_text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"paceline_{name}", help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _plain(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"paceline_{name}", help_text, value=value)
