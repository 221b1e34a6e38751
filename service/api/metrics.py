"""`/metrics` in Prometheus' format: this process's calls, and the state that all service processes share."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from service.runtime.context import Context
from service.store import counts, mirrors
from service.store.sql.database import database_now

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_metrics(request: Request) -> Response:
    """Counts and gauges for Prometheus; no names of experiments, no parameters."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class Checked(Protocol):
    """A background loop."""

    name: str

    def health(self) -> dict[str, Any]: ...


class State(Collector):
    """Read from the database at each scrape, so that every service process tells the same."""

    def __init__(self, context: Context, loops: Sequence[Checked]) -> None:
        self._context = context
        self._loops = loops

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: the registry need not ask the database when this is registered."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        loops = {loop.name: float(loop.health()["ok"]) for loop in self._loops}
        yield _gauge("loop_ok", "1 while the background loop does its work", "loop", loops)
        try:
            with self._context.database.read() as session:
                found = list(self._stored(session))
        except SQLAlchemyError:
            found = []
        yield _plain("database_up", "1 while the database answers", float(bool(found)))
        yield from found

    def _stored(self, session: Session) -> Iterator[GaugeMetricFamily]:
        now = database_now(session)
        yield _gauge("experiments", "Experiments by status", "status", counts.experiments(session))
        yield _gauge("live_trials", "Trials of live experiments by status", "status", counts.live_trials(session))
        yield _plain("leases", "Attempts that are running", counts.living_attempts(session))
        yield _plain("agents_connected", "Agents that ask for work", counts.connected_agents(session, now))
        if self._context.settings.mlflow_uri is not None:
            oldest = mirrors.oldest_waiting(session)
            yield _plain("mirror_lag_events", "Events that MLflow has still to be told", mirrors.lag(session))
            seconds = (now - oldest).total_seconds() if oldest else 0.0
            yield _plain("mirror_lag_seconds", "Age of the oldest event that MLflow has still to be told", seconds)


def _gauge(name: str, says: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"paceline_{name}", says, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _plain(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"paceline_{name}", says, value=value)
