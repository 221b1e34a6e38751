"""Builds the service's application: its routes, its middleware and its background loops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry
from pydantic.json_schema import models_json_schema

from service.api import (
    agents,
    attempts,
    best,
    events,
    experiments,
    health,
    importance,
    logs,
    metrics,
    packages,
    replay,
    spaces,
    trial_history,
    trials,
)
from service.api.http.access import needs, needs_by_method, needs_read_or_lease
from service.api.http.cross_origin import CrossOriginProtection
from service.api.http.direct_routes import DirectRoute
from service.api.http.guard import Guard
from service.api.http.problems import Problem, add_error_handlers, responses
from service.api.http.request_metrics import RequestMetrics
from service.background.change_polling import ChangePolling
from service.background.charting import Charting
from service.background.lease_expiry import LeaseExpiry
from service.background.loop import Loop
from service.background.mirroring import Mirroring
from service.domain.roles import Role
from service.operations.reports.ingest import ingest_reports
from service.runtime.context import Context
from service.runtime.group_commit import GroupCommit
from service.settings import Settings
from service.specification.models import ExperimentSpec
from service.store.sql.database import Database

VERSION = "0.1.0"


def create_app(settings: Settings) -> FastAPI:
    """The database must have the newest schema (`service.store.sql.schema.upgrade`)."""
    context = Context(settings, Database(settings.database_url))
    app = _App(
        title="Paceline",
        version=VERSION,
        description="A durable hyperparameter-tuning service over Ray Train.",
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # RequestMetrics costs less
        redirect_slashes=False,  # a redirect has no body, so curl would show nothing
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.context = context
    app.state.loops = _loops(context)
    app.state.reporting = GroupCommit("reporting", partial(ingest_reports, context))
    # The busiest routes come first, because FastAPI matches routes one by one.
    app.include_router(attempts.router)
    app.include_router(agents.router, responses=responses(401, 403))
    by_method = [Depends(needs_by_method)]
    for module in (experiments, best, importance, events, trials, trial_history, logs):
        app.include_router(module.router, dependencies=by_method, responses=responses(401, 403))
    for module in (replay, spaces):
        app.include_router(module.router, dependencies=[Depends(needs(Role.READ))], responses=responses(401, 403))
    app.include_router(packages.router, dependencies=[Depends(needs_read_or_lease)], responses=responses(401, 403))
    app.include_router(health.router)
    app.include_router(metrics.router)
    add_error_handlers(app)
    app.state.registry = CollectorRegistry()
    app.state.registry.register(metrics.StateCollector(context, app.state.loops))
    app.add_middleware(DirectRoute, attempts.REPORTS, attempts.serve_reports, app.exception_handlers)
    app.add_middleware(Guard)
    app.add_middleware(CrossOriginProtection, context)
    app.add_middleware(RequestMetrics, registry=app.state.registry)
    return app


def _loops(context: Context) -> list[Loop]:
    loops = [Loop(LeaseExpiry(context))]
    if not context.database.is_sqlite:
        loops.append(Loop(ChangePolling(context)))
    if context.settings.mlflow_uri:
        loops.append(Loop(Mirroring(context.database, context.settings.mlflow_uri), needed=False))
        if context.settings.picture_seconds:
            loops.append(Loop(_charting(context, context.settings.mlflow_uri), needed=False))
    return loops


def _charting(context: Context, mlflow_uri: str) -> Charting:
    return Charting(context.database, mlflow_uri, refresh=context.settings.picture_seconds, stopping=context.stopping)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    for loop in app.state.loops:
        loop.start()
    app.state.reporting.start()
    yield
    app.state.context.stop()
    for loop in app.state.loops:
        loop.stop()
    app.state.reporting.stop()
    app.state.context.close()


class _App(FastAPI):
    """Adds the schemas to OpenAPI that hand-written request bodies and responses refer to."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            _, extra = models_json_schema(
                [(ExperimentSpec, "validation"), (Problem, "serialization")],
                ref_template="#/components/schemas/{model}",
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            document["components"]["schemas"] = {**extra.get("$defs", {}), **schemas}
            self.openapi_schema = document
        return self.openapi_schema
