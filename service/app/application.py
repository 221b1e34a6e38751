"""The complete application: what can wait for the first reports is imported here."""

import threading
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from fastapi import Depends, FastAPI
from starlette.datastructures import State
from starlette.types import Lifespan

from search.samplers.registry import import_own_samplers
from service.api import docs, health, packages, prometheus, spaces
from service.api.agents import agents
from service.api.attempts import holder_calls
from service.api.experiments import best, events, experiments, importance, replay
from service.api.http.head_requests import HeadAsGet
from service.api.http.route_problems import add_error_handlers
from service.api.http.routes import refuse_unknown_query
from service.api.http.security.access import needs, needs_by_method, needs_read_or_lease
from service.api.openapi import overview
from service.api.trials import (
    checkpoints,
    decisions,
    event_files,
    experiment_reports,
    logs,
    trial_reports,
    trials,
)
from service.app.lifespan import running
from service.app.middleware import RequestsLogged, add_middleware
from service.app.state import new_state
from service.background.age_retention import AgeRetention
from service.background.charting import Charting
from service.background.checkpoint_retention import CheckpointRetention
from service.background.lease_expiry import LeaseExpiry
from service.background.lease_extension import LeaseExtension
from service.background.leftover_removal import LeftoverRemoval
from service.background.loop import Loop, Work
from service.background.mirroring import Mirroring
from service.background.stop_request_polling import StopRequestPolling
from service.background.time_limits import TimeLimits
from service.background.token_upkeep import TokenUpkeep
from service.domain.roles import Role
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.operations.attempts.scheduling.next_trial import propose_next_in_line
from service.runtime.computation import numeric_libraries
from service.runtime.context import Context
from service.runtime.events.event_feeds import EventFeeds
from service.settings import Settings
from trainer.traces import tracing

BY_METHOD = (
    experiments,
    best,
    importance,
    events,
    trials,
    experiment_reports,
    trial_reports,
    decisions,
    checkpoints,
    event_files,
    logs,
)
"""A GET needs the role `read`, any other call `write`."""
FOR_READERS = (replay, spaces, prometheus, docs)
"""Every call needs the role `read`, a POST too: it computes, and changes nothing."""

HEAVY_IMPORTS_AFTER = 1.0
"""Seconds from the service's start to the imports of SciPy and MLflow: reports, claims and heartbeats come first."""


def create_app(settings: Settings) -> FastAPI:
    """In one stage: the loops start with it. The database must have the newest schema."""
    return build(new_state(settings), lifespan=_with_loops)


def build(state: State, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """The loops do not run yet (`start_loops`)."""
    context: Context = state.context
    app = _App(
        title="Paceline",
        version=overview.API_VERSION,
        summary=overview.SUMMARY,
        description=overview.DESCRIPTION,
        openapi_tags=overview.TAGS,
        lifespan=lifespan,
        # RequestLog's histogram costs less than its metrics.
        telemetry={
            "tracing": context.settings.tracing,
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
    app.state = state
    add_error_handlers(app)
    app.add_middleware(HeadAsGet)
    add_middleware(app)
    _import_search(context)
    state.event_feeds = EventFeeds(context.database, context.new_events, context.stopping, events.server_sent)
    _add_routes(app)
    state.loops = _loops(context)
    state.registry.register(prometheus.StateCollector(context, state.loops))
    return app


def _import_search(context: Context) -> None:
    """NumPy and Optuna; otherwise the first claim would wait for them."""
    import_own_samplers()
    _ = context.proposals, context.importance
    numeric_libraries.limit_threads()


def start_loops(state: State) -> None:
    """To be called when the service answers: the first pass extends all leases, whose holders then have all of it."""
    for loop in state.loops:
        loop.start(0 if loop.needed else HEAVY_IMPORTS_AFTER)
    preparation = threading.Timer(HEAVY_IMPORTS_AFTER, _prepare_proposals, (state.context,))
    preparation.daemon = True
    preparation.start()


def _prepare_proposals(context: Context) -> None:
    """So that the first trials after a restart wait neither for imports nor for the search to load the others."""
    numeric_libraries.import_ahead()
    context.proposals.run_ahead(partial(propose_next_in_line, context))


@asynccontextmanager
async def _with_loops(app: FastAPI) -> AsyncIterator[None]:
    async with running(app.state):
        start_loops(app.state)
        yield


class _App(RequestsLogged, FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = import_module("service.api.openapi.document")
            self.openapi_schema = document.complete(super().openapi())
        return self.openapi_schema


def _is_probe(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in {"/healthz", "/readyz", "/metrics"}


def _add_routes(app: FastAPI) -> None:
    """The busiest routes come first, because FastAPI matches routes one by one. The query is checked after access."""
    known_query = Depends(refuse_unknown_query)
    app.include_router(holder_calls.router, dependencies=[known_query])
    app.include_router(agents.router)
    for module in BY_METHOD:
        app.include_router(module.router, dependencies=[Depends(needs_by_method), known_query])
    for module in FOR_READERS:
        app.include_router(module.router, dependencies=[Depends(needs(Role.READ)), known_query])
    app.include_router(packages.router, dependencies=[Depends(needs_read_or_lease), known_query])
    app.include_router(health.router, dependencies=[known_query])


def _loops(context: Context) -> list[Loop]:
    extension = LeaseExtension(context)
    needed: list[Work] = [extension, LeaseExpiry(context, extension), TimeLimits(context, extension)]
    # Tokens also count where none is needed: they admit calls under another host name.
    loops = [*map(Loop, needed), Loop(TokenUpkeep(context), needed=False)]
    if not context.database.is_sqlite:
        loops.append(Loop(StopRequestPolling(context)))
    if context.settings.mlflow_uri:
        loops += [Loop(work, needed=False) for work in _mlflow_work(context, context.settings.mlflow_uri)]
    loops.append(Loop(CheckpointRetention(context), needed=False))
    loops.append(Loop(LeftoverRemoval(context.settings), needed=False))
    loops.append(Loop(AgeRetention(context), needed=False))
    return loops


def _mlflow_work(context: Context, mlflow_uri: str) -> list[Work]:
    pause, refresh = RequestedPause(), context.settings.picture_seconds
    mirroring = Mirroring(context.database, mlflow_uri, pause=pause, draws_charts=refresh > 0)
    if not refresh:
        return [mirroring]
    charting = Charting(context.database, mlflow_uri, refresh=refresh, stopping=context.stopping, pause=pause)
    return [mirroring, charting]
