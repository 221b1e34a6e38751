"""Completes the application with what can wait for the first reports: all other routes, and the background loops."""

import threading

from fastapi import Depends, FastAPI

from service.api import (
    agents,
    attempts,
    best,
    checkpoints,
    docs,
    event_files,
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
from service.api.http.queries import refuse_unknown_query
from service.api.http.security.access import needs, needs_by_method, needs_read_or_lease
from service.background.change_polling import ChangePolling
from service.background.charting import Charting
from service.background.checkpoint_retention import CheckpointRetention
from service.background.lease_expiry import LeaseExpiry
from service.background.loop import Loop
from service.background.mirroring import Mirroring
from service.background.retention import Retention
from service.background.sweeping import Sweeping
from service.background.token_upkeep import TokenUpkeep
from service.domain.roles import Role
from service.runtime.computation import numeric_libraries
from service.runtime.context import Context
from service.runtime.events.event_feeds import EventFeeds

HEAVY_IMPORTS_AFTER = 1.0
"""Seconds from the service's start to the imports of SciPy and MLflow: reports, claims and heartbeats come first."""


def add_routes_and_loops(app: FastAPI) -> None:
    """The loops do not run yet (`start_loops`)."""
    context: Context = app.state.context
    app.state.event_feeds = EventFeeds(context.database, context.new_events, context.stopping, events.server_sent)
    _add_routes(app)
    app.state.loops = _loops(context)
    app.state.registry.register(metrics.StateCollector(context, app.state.loops))


def start_loops(app: FastAPI) -> None:
    """To be called when the service answers: the first pass extends all leases, whose holders then have all of it."""
    for loop in app.state.loops:
        loop.start(0 if loop.needed else HEAVY_IMPORTS_AFTER)
    imports = threading.Timer(HEAVY_IMPORTS_AFTER, numeric_libraries.import_ahead)
    imports.daemon = True
    imports.start()


def _add_routes(app: FastAPI) -> None:
    """The busiest routes come first, because FastAPI matches routes one by one. The query is checked after access."""
    known_query = Depends(refuse_unknown_query)
    app.include_router(attempts.router, dependencies=[known_query])
    app.include_router(agents.router)
    for module in (experiments, best, importance, events, trials, trial_history, checkpoints, event_files, logs):
        app.include_router(module.router, dependencies=[Depends(needs_by_method), known_query])
    for module in (replay, spaces):
        app.include_router(module.router, dependencies=[Depends(needs(Role.READ)), known_query])
    app.include_router(packages.router, dependencies=[Depends(needs_read_or_lease), known_query])
    app.include_router(health.router, dependencies=[known_query])
    for module in (metrics, docs):
        app.include_router(module.router, dependencies=[Depends(needs(Role.READ)), known_query])


def _loops(context: Context) -> list[Loop]:
    loops = [Loop(LeaseExpiry(context))]
    if context.settings.needs_tokens:
        loops.append(Loop(TokenUpkeep(context), needed=False))
    if not context.database.is_sqlite:
        loops.append(Loop(ChangePolling(context)))
    if context.settings.mlflow_uri:
        loops.append(Loop(Mirroring(context.database, context.settings.mlflow_uri), needed=False))
        if context.settings.picture_seconds:
            loops.append(Loop(_charting(context, context.settings.mlflow_uri), needed=False))
    loops.append(Loop(CheckpointRetention(context), needed=False))
    loops.append(Loop(Sweeping(context.settings), needed=False))
    loops.append(Loop(Retention(context), needed=False))
    return loops


def _charting(context: Context, mlflow_uri: str) -> Charting:
    return Charting(context.database, mlflow_uri, refresh=context.settings.picture_seconds, stopping=context.stopping)
