"""What the application's first stage and the complete application share: the state, the middleware, the lifespan."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.types import ASGIApp

from service.api import reports
from service.api.http.body_size_limit import RequestLimits
from service.api.http.direct_routes import DirectRoute
from service.api.http.error_precedence import look_up_lease
from service.api.http.request_log import RequestLog, request_seconds
from service.api.http.security.cross_origin import CrossOriginProtection
from service.operations.reports.ingest import ingest_reports
from service.runtime.computation.compute_pool import ComputePool
from service.runtime.computation.threads import limit_ordinary_threads
from service.runtime.context import Context
from service.runtime.events.open_stream_limit import follower_streams
from service.runtime.group_commit import GroupCommit
from service.settings import Settings
from service.store.sql.database import Database


def new_state(settings: Settings) -> State:
    """The database must have the newest schema (`service.store.sql.schema_upgrade.upgrade`)."""
    context = Context(
        settings,
        Database(settings.database_url),
        compute=ComputePool(settings.compute_seconds),
        followers=follower_streams(settings.max_followers),
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return State(
        {
            "context": context,
            "reporting": GroupCommit("reporting", partial(ingest_reports, context)),
            "loops": [],
            "registry": registry,
            "request_seconds": request_seconds(registry),
        }
    )


class RequestsLogged(Starlette):
    """Starlette would put its own answer to unhandled errors outside of all middleware."""

    def build_middleware_stack(self) -> ASGIApp:
        return RequestLog(super().build_middleware_stack(), self.state.request_seconds)


def add_middleware(app: Starlette) -> None:
    """Around what was added before. The application must have its state and its exception handlers."""
    app.add_middleware(DirectRoute, reports.POST_REPORTS, reports.serve_reports, look_up_lease, app.exception_handlers)
    app.add_middleware(RequestLimits)
    app.add_middleware(CrossOriginProtection, app.state.context)


@asynccontextmanager
async def running(state: State) -> AsyncIterator[None]:
    """Run what answers reports; at the end, stop and close all that the state has by then."""
    limit_ordinary_threads()
    state.reporting.start()
    yield
    state.context.stop()
    for loop in state.loops:
        loop.stop()
    state.reporting.stop()
    state.context.close()
