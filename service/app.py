"""Builds the service's application, in two stages if wanted: reports first, then everything else.

What only the second stage needs is imported then (`service.complete_app`), since imports are most of a start's time: a
service that was killed answers reports again after about half of them.
"""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.types import ASGIApp

from service.api import reports
from service.api.http.direct_routes import DirectRoute
from service.api.http.guard import Guard
from service.api.http.head import HeadAsGet
from service.api.http.problems import add_error_handlers
from service.api.http.request_log import RequestLog
from service.api.http.request_metrics import RequestMetrics
from service.api.http.routes_awaited import RoutesAwaited
from service.api.http.security.cross_origin import CrossOriginProtection
from service.api.openapi import overview
from service.operations.reports.ingest import ingest_reports
from service.runtime import garbage_collection
from service.runtime.computation.compute_pool import ComputePool
from service.runtime.computation.threads import limit_ordinary_threads
from service.runtime.context import Context
from service.runtime.events.open_streams import follower_streams
from service.runtime.group_commit import GroupCommit
from service.settings import Settings
from service.store.sql.database import Database
from trainer.traces import tracing


def create_app(settings: Settings, *, in_stages: bool = False) -> FastAPI:
    """The database must have the newest schema (`service.store.sql.schema.upgrade`).

    `in_stages`: the application is there sooner and answers reports; all other calls wait until the caller, who has
    begun to listen, has called `complete`. Otherwise the application is complete, and its loops start with it.
    """
    context = Context(
        settings,
        Database(settings.database_url),
        compute=ComputePool(settings.compute_seconds),
        followers=follower_streams(settings.max_followers),
    )
    app = _App(
        title="Paceline",
        version=overview.API_VERSION,
        summary=overview.SUMMARY,
        description=overview.DESCRIPTION,
        openapi_tags=overview.TAGS,
        lifespan=_lifespan,
        # RequestMetrics costs less than its metrics.
        telemetry={
            "tracing": settings.tracing,
            "tracer_provider": tracing.provider,
            "operation_spans": False,
            "metrics": False,
            "logs": False,
            "exclude": _is_probe,
        },
        docs_url=None,  # `docs` has its own page, which loads nothing from other hosts
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # a redirect has no body, so curl would show nothing
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.context = context
    app.state.loops, app.state.in_stages, app.state.complete = [], in_stages, asyncio.Event()
    app.state.reporting = GroupCommit("reporting", partial(ingest_reports, context))
    add_error_handlers(app)
    app.state.registry = CollectorRegistry()
    ProcessCollector(registry=app.state.registry)
    app.add_middleware(RoutesAwaited, app.state.complete)
    app.add_middleware(HeadAsGet)
    app.add_middleware(DirectRoute, reports.REPORTS, reports.serve_reports, app.exception_handlers)
    app.add_middleware(Guard)
    app.add_middleware(CrossOriginProtection, context)
    app.add_middleware(RequestMetrics, registry=app.state.registry)
    if not in_stages:
        _complete(app)
        app.state.complete.set()
    return app


async def complete(app: FastAPI) -> None:
    """The second stage: import, in a thread, all that the first one left out; then answer all calls."""
    await asyncio.to_thread(_complete, app)
    import_module("service.complete_app").start_loops(app)
    app.state.complete.set()


def _complete(app: FastAPI) -> None:
    with garbage_collection.frozen_afterwards():
        import_module("service.complete_app").add_routes_and_loops(app)


def _is_probe(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in {"/healthz", "/readyz", "/metrics"}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    limit_ordinary_threads()
    app.state.reporting.start()
    if not app.state.in_stages:
        import_module("service.complete_app").start_loops(app)
    yield
    app.state.context.stop()
    for loop in app.state.loops:
        loop.stop()
    app.state.reporting.stop()
    app.state.context.close()


class _App(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """Starlette would put its own answer to unhandled errors outside of all middleware."""
        return RequestLog(super().build_middleware_stack())

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = import_module("service.api.openapi.document")
            self.openapi_schema = document.complete(super().openapi())
        return self.openapi_schema
